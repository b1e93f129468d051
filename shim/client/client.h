// The process's connection to its host, for shim/verbs. Adds to client_abi.h typed calls, shared
// memory, doorbells and the host's state. A process has one connection, which its first call makes.
// A forked child makes a new one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "emulator/abi/calls.h"
#include "emulator/abi/program_place.h"
#include "shim/client/client_abi.h"

namespace rdmaemu::client {

// Makes one call of calls.h. Fails with EPROTO unless the reply fills `out`. Returns 0 or a
// positive errno.
template <class In, class Out>
int Call(CallOp op, const In& in, Out& out, int* descriptors = nullptr, uint32_t count = 0) {
  static_assert(std::is_trivially_copyable_v<In> && std::is_trivially_copyable_v<Out>);
  uint32_t filled = 0;
  const int error = rdmaemu_client_call(static_cast<uint32_t>(op), &in, sizeof in, &out, sizeof out,
                                        &filled, descriptors, count);
  return error != 0 ? error : filled == sizeof out ? 0 : EPROTO;
}
// Makes a call whose reply is empty.
template <class In>
int Call(CallOp op, const In& in) {
  return rdmaemu_client_call(static_cast<uint32_t>(op), &in, sizeof in, nullptr, 0, nullptr,
                             nullptr, 0);
}

// Makes a call whose reply is one descriptor.
template <class In>
int CallForDescriptor(CallOp op, const In& in, int& fd) {
  return rdmaemu_client_call(static_cast<uint32_t>(op), &in, sizeof in, nullptr, 0, nullptr, &fd,
                             1);
}

// Returns the address of a span of a segment in this process, and maps a new segment. Returns
// nullptr and errno on failure. Mappings last as long as the process.
std::byte* MapSpan(const SharedSpan& span);

// Signals work in the send queue of a queue pair, and wakes a sleeping host. Slots are those of
// CreateQpOut, which the caller has checked with IsDoorbell.
void RingQueue(uint32_t qp, uint32_t slot);
bool IsDoorbell(uint32_t qp, uint32_t slot);

// Returns true if the host of the queue pair takes payloads from the slab (emulator/abi/slab.h).
bool HasPayloadShortcuts(uint32_t qp);

// Returns true if a fault rule exists for this call. The caller must first ask the handle's host
// (AskIn).
bool IsWatched(CallOp op, uint32_t handle);

// Returns the page of copies that the host offers to this process. Returns nullptr before the first
// call, and in a child that shares its parent's connection (OtherOwner). After copying, call
// JobsDone.
JobPage* Jobs();
void JobsDone();

// Lets the host run, which may wait for this thread's processor. Blocks at most for the host's turn
// (emulator/abi/host_turn.h), and otherwise only yields.
void YieldToHost();
// Returns true if waits for events should not begin with yields, because recent waits for the host
// were shorter without (wait_choice.h).
bool SleepsAtOnce();
// Counts for the host what this thread does.
void Count(uint32_t ProgramPlace::*count);

// Returns true while a thread on any processor may wait for the end of the host's turn. Then call
// AwaitHostAnywhere instead of YieldToHost, if the thread has nothing else to do.
bool MayAwaitHostAnywhere();
void AwaitHostAnywhere();

// Lets a host inside this process do work. Returns false if the host is another process.
bool DriveEmbedded();
bool IsEmbedded();

// Joins a forked child to its parent's group. Does nothing in other processes. Calls join first. So
// do IsWatched and HostIsGone with a handle, one of which runs first in every post and poll. Before
// a child has joined, it must not access memory that it shares with its parent.
void JoinIfForked();
// Returns true in a forked child that has not joined. The child shares queues with its parent, and
// only the parent may consume from them.
bool HasToJoin();

// Returns true after the host has ended. Calls then return EIO, counters are readable, and queues
// no longer change.
bool HostIsGone();
// Returns true if the host of this handle's object has ended, or if a child cannot join.
bool HostIsGone(uint32_t handle);

// Adds 1 to a counter. Returns false, and does nothing, if the descriptor is no counter in this
// thread's descriptor table, or if the thread may not write (seccomp(2)). Preserves errno.
bool RaiseCounter(int fd);

// Returns whether RaiseCounter would raise the counter.
bool IsRaisable(int fd);

// Returns false in a signal handler that has interrupted a call of this thread. Another call would
// wait for that one.
bool MayCall();

// Closes a counter's descriptor.
void CloseCounter(int fd);

}  // namespace rdmaemu::client
