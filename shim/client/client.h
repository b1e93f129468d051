// What shim/verbs uses of the process's connection besides client_abi.h: typed calls, shared
// memory, doorbells, and whether the host still lives. One connection a process, made by the first
// call, made anew in a forked child.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "emulator/abi/calls.h"
#include "shim/client/client_abi.h"

namespace rdmaemu::client {

// One call of calls.h. `Out` must come whole. Answers 0 or a positive errno.
template <class In, class Out>
int Call(CallOp op, const In& in, Out& out, int* descriptors = nullptr, uint32_t count = 0) {
  static_assert(std::is_trivially_copyable_v<In> && std::is_trivially_copyable_v<Out>);
  uint32_t filled = 0;
  const int error = rdmaemu_client_call(static_cast<uint32_t>(op), &in, sizeof in, &out, sizeof out,
                                        &filled, descriptors, count);
  return error != 0 ? error : filled == sizeof out ? 0 : EPROTO;
}
// The same for calls that answer nothing.
template <class In>
int Call(CallOp op, const In& in) {
  return rdmaemu_client_call(static_cast<uint32_t>(op), &in, sizeof in, nullptr, 0, nullptr,
                             nullptr, 0);
}

// Where a span of a segment is in this process, mapping the segment when it is new; nullptr and
// errno when it cannot be. Mappings last as long as the process.
std::byte* MapSpan(const SharedSpan& span);

// Tells the host of a queue pair that its send queue has work; wakes it when it sleeps. Slots are
// those of CreateQpOut, which the caller has checked with IsDoorbell.
void RingQueue(uint32_t qp, uint32_t slot);
bool IsDoorbell(uint32_t qp, uint32_t slot);

// The host of the queue pair takes payloads from the slab (emulator/abi/slab.h).
bool HasPayloadShortcuts(uint32_t qp);

// A fault rule stands at this call (AskIn): the host of the handle is to be asked before it.
bool IsWatched(CallOp op, uint32_t handle);

// Copies that the host would like this process to do; nullptr before the first call. Who has done
// some says so.
JobPage* Jobs();
void JobsDone();

// Lets a host inside this process work; false where the host is another process.
bool DriveEmbedded();
bool IsEmbedded();

// A forked child joins its parent's group; it does nothing in others. Calls do this themselves; so
// do IsWatched and HostIsGone with a handle, one of which is called first by whoever posts or
// polls: before that a child must not touch what it shares with its parent.
void JoinIfForked();
// A forked child that has not: it shares queues with its parent, which alone may take from them.
bool HasToJoin();

// The host has gone: calls answer EIO, counters are readable, queues stand still.
bool HostIsGone();
// The same of the host that an object with this handle is on; true also where a child cannot join.
bool HostIsGone(uint32_t handle);

// Closes a counter's descriptor.
void CloseCounter(int fd);

}  // namespace rdmaemu::client
