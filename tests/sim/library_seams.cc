// The functions that the shipped library is linked with here: a connection that ends in the
// simulated host (shim/client/client.h), and program memory at the simulated process's addresses
// (shim/verbs/program_memory.h, shim/verbs/region_check.h). Each function acts on the process that
// the thread has entered (Process::Enter).
#include <errno.h>

#include <algorithm>
#include <cstring>

#include "shim/client/client.h"
#include "shim/client/fork_lock.h"
#include "shim/client/parallel_wait.h"
#include "shim/verbs/program_memory.h"
#include "shim/verbs/region_check.h"
#include "tests/sim/process.h"

namespace rdmaemu::client {

std::atomic<uint32_t> g_fork_generation{1};
const char g_device_order = 0;

std::byte* MapSpan(const SharedSpan& span) { return sim::Process::Current().At(span); }

void RingQueue(uint32_t, uint32_t slot) { sim::Process::Current().RingBell(slot); }
bool IsDoorbell(uint32_t, uint32_t slot) { return slot < DoorbellPage::kMaxQueues; }
bool HasPayloadShortcuts(uint32_t) {
  return sim::Process::Current().doorbells().no_payload_shortcuts == 0;
}
bool IsWatched(CallOp op, uint32_t) {
  return (sim::Process::Current().doorbells().watched_calls & WatchBit(op)) != 0;
}

JobPage* Jobs() { return sim::Process::Current().OfferedCopies(); }
void JobsDone() { sim::Process::Current().WakeHost(); }

// A poll without a result does not yield, because nothing runs in parallel.
bool DriveEmbedded() { return true; }
bool IsEmbedded() { return false; }
void YieldToHost() {}
bool SleepsAtOnce() { return false; }
bool MayAwaitHostAnywhere() { return false; }
void AwaitHostAnywhere() {}
void Count(uint32_t ProgramPlace::*) {}

bool HostIsGone() { return !sim::Process::Current().Lives(); }
bool HostIsGone(uint32_t) { return HostIsGone(); }
bool RaiseCounter(int fd) { return sim::Process::Current().AddTo(fd); }
bool IsRaisable(int) { return sim::Process::Current().Lives(); }
bool MayCall() { return true; }
void CloseCounter(int) {}
uint32_t OtherOwner() { return 0; }
SendLane* MapLane(int fd) { return sim::Process::Current().LaneAt(fd); }
void UnmapLane(SendLane*) {}
bool ParallelWait::Take() { return takes_++ == 0; }
// Process::Fork has already joined the group.
void JoinIfForked() {}
bool HasToJoin() { return false; }

}  // namespace rdmaemu::client

extern "C" {

int rdmaemu_client_call(uint32_t op, const void* in, uint32_t in_size, void* out, uint32_t out_size,
                        uint32_t* out_filled, int* descriptors, uint32_t descriptor_count) {
  using rdmaemu::sim::Process;
  const rdmaemu::Reply reply = Process::Current().CallBytes(op, in, in_size);
  const auto filled = static_cast<uint32_t>(std::min<size_t>(reply.body.size(), out_size));
  if (reply.error == 0 && filled > 0) std::memcpy(out, reply.body.data(), filled);
  if (out_filled != nullptr) *out_filled = reply.error == 0 ? filled : 0;
  for (uint32_t i = 0; i < descriptor_count; i++) {
    descriptors[i] = i < reply.descriptors.size() ? Process::FdOf(reply.descriptors[i]) : -1;
  }
  return reply.error;
}

int rdmaemu_client_wait(int fd) { return rdmaemu::sim::Process::Current().TakeFrom(fd); }
void rdmaemu_client_put_back(int) {}
}

namespace rdmaemu::shim {

void ProgramMemory::Begin() { now_ns_ = sim::Process::Current().now_ns(); }

bool ProgramMemory::Read(void* to, uint64_t address, size_t bytes) {
  return sim::Process::Current().ReadOwn(address, {static_cast<std::byte*>(to), bytes});
}

bool ProgramMemory::Write(uint64_t address, const void* from, size_t bytes) {
  return sim::Process::Current().WriteOwn(address, {static_cast<const std::byte*>(from), bytes});
}

bool CanCopyGuarded() { return true; }

uint32_t CopyingThread() { return 1; }

ssize_t CopyGuarded(const CopyGuard& guard, pid_t pid, bool pull, std::span<const iovec> own,
                    std::span<const iovec> other) {
  return sim::Process::Current().CopyWith(guard, static_cast<uint32_t>(pid), pull, own, other);
}

// The simulated host checks the pages itself.
RegionPages LookAtPages(uint64_t, uint64_t, bool) { return RegionPages::kUnknown; }

}  // namespace rdmaemu::shim
