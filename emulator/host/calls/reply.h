// A host's reply to a call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "emulator/base/ids.h"
#include "emulator/base/memory.h"
#include "emulator/host/calls/reply_body.h"

namespace rdmaemu {

// A file descriptor that is sent to the client with a reply.
struct DoorbellDescriptor {};                          // the eventfd that wakes the host
using ForeignDescriptor = std::shared_ptr<const int>;  // a duplicate of another host's
using ReplyDescriptor = std::variant<CounterId, SegmentId, DoorbellDescriptor, ForeignDescriptor>;

struct Reply {
  int error = 0;                             // positive errno
  ReplyBody body;                            // Out of calls.h; empty on error
  std::vector<ReplyDescriptor> descriptors;  // in the order of calls.h
  // A fault rule delays the reply. The caller must send nothing until Host::TakeLateReply returns
  // the reply. Other callers of the process go on.
  bool is_late = false;
};

struct LateReply {
  ProcessId process;
  Reply reply;
  uint32_t caller = 0;  // as in Host::Call
};

}  // namespace rdmaemu
