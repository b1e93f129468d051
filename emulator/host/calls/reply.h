// What a host answers to a call.
#pragma once

#include <cstddef>
#include <variant>
#include <vector>

#include "emulator/base/ids.h"
#include "emulator/base/memory.h"

namespace rdmaemu {

// A descriptor that goes to the client with a reply.
struct DoorbellDescriptor {};  // the eventfd that wakes the host
using ReplyDescriptor = std::variant<CounterId, SegmentId, DoorbellDescriptor>;

struct Reply {
  int error = 0;                             // positive errno
  std::vector<std::byte> body;               // Out of calls.h; empty on error
  std::vector<ReplyDescriptor> descriptors;  // in the order calls.h names them
  // A fault rule has the caller wait: nothing is to be sent until Host::TakeLateReply has it.
  bool is_late = false;
};

struct LateReply {
  ProcessId process;
  Reply reply;
};

}  // namespace rdmaemu
