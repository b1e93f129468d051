// The commands of rdma_user_cm.h: a table of their sizes and handlers. Inputs come from programs
// and are hostile; what passes here is whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "emulator/abi/command_structs.h"
#include "emulator/cm/channel.h"
#include "emulator/cm/rdma_ids.h"

namespace rdmaemu::cm {

struct CommandContext {
  Time now;
  GroupId group;
  ProcessId process;
  Channel& channel;
  Channels& channels;
  RdmaIds& ids;
};

// Runs RDMA_USER_CM_CMD_* number `command`; answers the bytes of `out` that were filled. EINVAL for
// an unknown command or an input of another size, ENOSPC when the response does not fit, ENOSYS for
// GET_OPTION, which the kernel has a number for but no code, and for the InfiniBand services of
// newer kernels.
Result<size_t> RunCommand(CommandContext& context, uint32_t command, std::span<const std::byte> in,
                          std::span<std::byte> out);

}  // namespace rdmaemu::cm
