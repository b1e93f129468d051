// The commands of rdma_user_cm.h: a table of their sizes and handlers. Programs may send hostile
// input. The table checks every input's size before its handler runs.
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

// Executes command RDMA_USER_CM_CMD_* number `command`. Returns how many bytes of `out` were
// filled. Returns EINVAL for an unknown command or an input of another size. Returns ENOSPC when
// the response does not fit. Returns ENOSYS for GET_OPTION, which has a number but no code in the
// kernel, and for the InfiniBand services of newer kernels.
Result<size_t> RunCommand(CommandContext& context, uint32_t command, std::span<const std::byte> in,
                          std::span<std::byte> out);

// Returns the id in a command's input. 0: the command has no id, or the input is too short.
uint32_t IdOf(uint32_t command, std::span<const std::byte> in);

// The queued events that a command may remove, or with which it may change what a program learns:
// the replies to queries about the event's ids.
struct ChangedEvents {
  enum class Which : uint8_t { kNone, kOfId, kAny };
  Which which;
  uint32_t id = 0;  // kOfId

  bool Have(const PendingEvent& event) const {
    return which == Which::kAny ||
           (which == Which::kOfId && (id == event.id || id == event.new_id));
  }
};
ChangedEvents EventsChangedBy(uint32_t command, std::span<const std::byte> in);

}  // namespace rdmaemu::cm
