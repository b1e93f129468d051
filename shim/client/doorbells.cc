// The pages that this process shares with its hosts: doorbells of queues, jobs, and what the hosts
// watch.
#include <atomic>

#include "emulator/abi/ring.h"
#include "emulator/base/id_space.h"
#include "shim/client/client.h"
#include "shim/client/embedded.h"
#include "shim/client/own_doorbells.h"
#include "shim/client/own_pid.h"

namespace rdmaemu::client {

constinit std::atomic<DoorbellPage*> g_doorbells[IdSpace::kMaxParts] = {};

namespace {

// Returns the doorbells of the host that has the object.
DoorbellPage* DoorbellsOf(uint32_t handle) {
  const uint32_t number = Embedded() == nullptr ? 0 : IdSpace::PartOf(handle);
  return g_doorbells[number].load(std::memory_order_relaxed);
}

}  // namespace

bool IsDoorbell(uint32_t qp, uint32_t slot) {
  return slot < DoorbellPage::kMaxQueues && DoorbellsOf(qp) != nullptr;
}

void RingQueue(uint32_t qp, uint32_t slot) {
  DoorbellPage* const page = DoorbellsOf(qp);
  if (page == nullptr || !RingDoorbell(*page, slot)) return;
  if (const rdmaemu_embedded_host* const embedded = Embedded()) return embedded->ring();
  WakeHost();
}

bool HasPayloadShortcuts(uint32_t qp) {
  DoorbellPage* const page = DoorbellsOf(qp);
  return page != nullptr && page->no_payload_shortcuts == 0;
}

bool IsWatched(CallOp op, uint32_t handle) {
  JoinIfForked();
  DoorbellPage* const page = DoorbellsOf(handle);
  return page != nullptr &&
         (std::atomic_ref(page->watched_calls).load(std::memory_order_relaxed) & WatchBit(op)) != 0;
}

DoorbellPage* OwnDoorbells() { return g_doorbells[0].load(std::memory_order_relaxed); }

// Hosts inside this process make their copies themselves and offer no jobs. The addresses of a job
// are those of the process that has connected.
JobPage* Jobs() {
  DoorbellPage* const page = OwnDoorbells();
  return page == nullptr || OtherOwner() != 0 ? nullptr : &page->jobs;
}

// A sleeping host stores `host_asleep` before it reads the states of the jobs.
void JobsDone() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (MustWakeHost(*OwnDoorbells())) WakeHost();
}

}  // namespace rdmaemu::client
