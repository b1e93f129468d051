// The commands of rdma_user_cm.h: a table of their sizes and handlers. Inputs come from programs
// and are hostile; what passes here is whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "emulator/cm/channel.h"
#include "emulator/cm/rdma_ids.h"

namespace rdmaemu::cm {

// Where the kernel's structs hold a pointer or have an open end: the layouts of CmSetOption and
// CmQueryPathOut in emulator/host/calls.h.
inline constexpr size_t kMaxOptionBytes = 512;
struct SetOptionCommand {
  rdma_ucm_set_option command;  // optval is not used
  uint8_t value[kMaxOptionBytes];
};
struct QueryPathResponse {
  uint32_t num_paths;
  uint32_t reserved;
  ib_path_rec_data paths[2];
};

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
// GET_OPTION, which the kernel has a number for but no code.
Result<size_t> RunCommand(CommandContext& context, uint32_t command, std::span<const std::byte> in,
                          std::span<std::byte> out);

}  // namespace rdmaemu::cm
