// Threads that wait until their host has used a processor (emulator/abi/host_turn.h).
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>

#include "shim/client/client.h"
#include "shim/client/machine_clock.h"
#include "shim/client/neighbours.h"
#include "shim/client/own_doorbells.h"

namespace rdmaemu::client {
namespace {

// A host that does not end its turn was stopped or killed. The limit is longer than a timer tick of
// the kernel. A shorter one would make the kernel program the processor's timer for each wait.
constexpr long kLongestTurnNanoseconds = 20'000'000;

// The limit of a wait on another processor than the host's. A thread that polls must not lose more
// time than the scheduler may take from it, because runnable threads are more than processors. The
// limit is longer than a timer tick, as above.
constexpr long kLongestFarTurnNanoseconds = 5'000'000;

constinit Neighbours g_neighbours;

void AwaitTurnEnd(HostTurn& page, uint32_t turn, long limit_nanoseconds) {
  const int before = errno;
  const timespec limit{0, limit_nanoseconds};
  MachineSyscall()(SYS_futex, &page.ended, FUTEX_WAIT, turn, &limit, nullptr, 0);
  errno = before;
}

}  // namespace

void YieldToNeighbours() {
  const uint64_t begun_ns = MachineNow_ns();
  sched_yield();
  g_neighbours.Yielded(MachineNow_ns() - begun_ns);
}

bool MaySpin() { return g_neighbours.MaySpin(); }

void Count(uint32_t ProgramPlace::*count) {
  DoorbellPage* const page = OwnDoorbells();
  const int processor = page == nullptr ? -1 : sched_getcpu();
  if (processor >= 0) NotePlace(page->place, count, static_cast<uint32_t>(processor));
}

bool IsHostHere() {
  DoorbellPage* const page = OwnDoorbells();
  const int processor = page == nullptr ? -1 : sched_getcpu();
  return processor >= 0 && IsTurnHere(page->turn, static_cast<uint32_t>(processor));
}

bool MayAwaitHostAnywhere() {
  DoorbellPage* const page = OwnDoorbells();
  return page != nullptr && IsTurnOpenToAll(page->turn) && !IsEmbedded();
}

void AwaitHostAnywhere() {
  DoorbellPage* const page = OwnDoorbells();
  const int processor = sched_getcpu();
  if (processor >= 0 && IsTurnHere(page->turn, static_cast<uint32_t>(processor))) {
    return YieldToHost();
  }
  Count(&ProgramPlace::vain_polls);
  uint32_t turn = 0;
  if (!AnnounceTurnWait(page->turn, page->host_asleep, HostTurn::kAwaitedElsewhere, turn)) {
    sched_yield();
    return;
  }
  AwaitTurnEnd(page->turn, turn, kLongestFarTurnNanoseconds);
}

void YieldToHost() {
  Count(&ProgramPlace::vain_polls);
  DoorbellPage* const page = OwnDoorbells();
  const int processor = page == nullptr ? -1 : sched_getcpu();
  uint32_t turn = 0;
  if (processor < 0 || IsEmbedded() ||
      !MayAwaitTurn(page->turn, page->host_asleep, static_cast<uint32_t>(processor), turn)) {
    sched_yield();
    return;
  }
  AwaitTurnEnd(page->turn, turn, kLongestTurnNanoseconds);
}

}  // namespace rdmaemu::client
