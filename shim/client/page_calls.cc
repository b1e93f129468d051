#include "shim/client/page_calls.h"

#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include <bit>

#include "shim/client/machine_clock.h"
#include "shim/client/neighbours.h"
#include "shim/client/own_doorbells.h"
#include "shim/client/race_detector.h"
#include "shim/client/system.h"
#include "shim/client/wait_choice.h"
#include "shim/client/yield_budget.h"

namespace rdmaemu::client {
namespace {

// A host that is awake on another processor answers most calls during the spins. A host that waits
// for this processor runs during the yields that follow.
constexpr int kSpins = 40;
// How long a thread spins further if no other thread wants its processor.
constexpr uint64_t kSpinAloneFor_ns = 8000;
constexpr long kLookForHostNanoseconds =
    100'000'000;  // how often to check the host, in case its end was not noticed

constexpr uint32_t kAllFree = (uint32_t{1} << CallPageSet::kAtOnce) - 1;

bool Answered(CallPage& page) { return page.State() == CallPage::kAnswered; }

// Calls of any thread.
constinit WaitChoice g_wait_choice;

bool SpinUntilAnswered(CallPage& page) {
  for (int i = 0; i < kSpins; i++) {
    if (Answered(page)) return true;
  }
  return false;
}

// Spins while the host answers on another processor, if that costs other threads nothing.
bool SpinAloneUntilAnswered(CallPage& page) {
  if (std::atomic_ref(page.host_looks).load(std::memory_order_relaxed) == 0) return false;
  if (IsHostHere() || !MaySpin()) return false;
  const uint64_t begun_ns = MachineNow_ns();
  do {
    if (SpinUntilAnswered(page)) return true;
  } while (MachineNow_ns() - begun_ns < kSpinAloneFor_ns);
  return false;
}

bool YieldUntilAnswered(CallPage& page) {
  std::atomic_ref waits(page.caller_waits);
  bool is_host_here = IsHostHere();
  for (YieldBudget budget; budget.Take(is_host_here); is_host_here = IsHostHere()) {
    waits.store(is_host_here ? CallPage::kYieldsHere : CallPage::kAwake, std::memory_order_relaxed);
    YieldToNeighbours();
    if (Answered(page)) return true;
  }
  return false;
}

// Returns false if the host has ended.
bool SleepUntilAnswered(CallPage& page, const PageCaller& caller) {
  std::atomic_ref(page.caller_waits).store(CallPage::kSleeps, std::memory_order_seq_cst);
  for (uint32_t state = page.State(); state != CallPage::kAnswered && !caller.gone.load();
       state = page.State()) {
    const timespec limit{0, kLookForHostNanoseconds};
    // The time-out counts the machine's time, even in program time.
    if (MachineSyscall()(SYS_futex, &page.state, FUTEX_WAIT, state, &limit, nullptr, 0) != 0 &&
        errno == ETIMEDOUT && caller.host_has_ended()) {
      break;
    }
  }
  return Answered(page);
}

// Returns false if the host has ended.
bool AwaitAnswer(CallPage& page, const PageCaller& caller) {
  if (SpinUntilAnswered(page) || SpinAloneUntilAnswered(page)) return true;
  const uint64_t begun_ns = MachineNow_ns();
  const WaitChoice::Way way = g_wait_choice.Next(begun_ns);
  const bool is_answered =
      (way == WaitChoice::kYields && YieldUntilAnswered(page)) || SleepUntilAnswered(page, caller);
  const uint64_t now_ns = MachineNow_ns();
  g_wait_choice.Took(way, now_ns - begun_ns, now_ns);
  return is_answered;
}

int Exchange(CallPage& page, CallHeader header, const void* in, Buffer& out,
             const PageCaller& caller) {
  page.call = header;
  std::atomic_ref(page.caller_waits).store(CallPage::kAwake, std::memory_order_relaxed);
  if (header.size > 0) memcpy(page.in, in, header.size);
  if (page.Ask() && !caller.wake_host()) return EIO;
  if (!AwaitAnswer(page, caller)) return EIO;
  const ReplyHeader reply = page.reply;
  out.filled = reply.size < out.size ? reply.size : out.size;
  if (out.filled > 0) memcpy(out.bytes, page.out, out.filled);
  std::atomic_ref(page.state).store(CallPage::kIdle, std::memory_order_relaxed);
  return reply.error >= 0 ? reply.error : EPROTO;
}

}  // namespace

bool SleepsAtOnce() {
  return g_wait_choice.best() == WaitChoice::kSleeps && g_wait_choice.IsRecent(MachineNow_ns());
}

void CallPages::Init() {
  if (CallPageSet* const set = set_.exchange(nullptr)) munmap(set, sizeof *set);
  for (Half& half : halves_) half = {kAllFree, 0};
}

void CallPages::Map(int fd) {
  struct stat status;
  if (SysFileStatus(fd, &status) != 0 || status.st_size < off_t{sizeof(CallPageSet)}) return;
  void* const bytes = SysMapShared(fd, sizeof(CallPageSet));
  if (bytes != MAP_FAILED) set_ = static_cast<CallPageSet*>(bytes);
}

// Takes the first free page, because the host looks at the pages of recent calls only.
uint32_t CallPages::TakeFrom(Half& half) {
  std::atomic_ref free(half.free), waiting(half.waiting);
  uint32_t now = free.load();
  for (;;) {
    if (now != 0) {
      if (free.compare_exchange_weak(now, now & (now - 1))) {
        return static_cast<uint32_t>(std::countr_zero(now));
      }
      continue;
    }
    waiting.fetch_add(1);
    MachineSyscall()(SYS_futex, &half.free, FUTEX_WAIT_PRIVATE, 0, nullptr, nullptr, 0);
    waiting.fetch_sub(1);
    now = free.load();
  }
}

void CallPages::GiveBack(Half& half, uint32_t number) {
  std::atomic_ref(half.free).fetch_or(uint32_t{1} << number);
  if (std::atomic_ref(half.waiting).load() == 0) return;
  // One thread alone might run a long signal handler before it takes the page.
  syscall(SYS_futex, &half.free, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

int CallPages::Call(CallHeader header, const void* in, Buffer& out, const PageCaller& caller,
                    bool is_nested) {
  Half& half = halves_[is_nested ? 1 : 0];
  const uint32_t number = TakeFrom(half);
  const uint32_t page = (is_nested ? CallPageSet::kAtOnce : 0) + number;
  CallPageSet& set = *set_.load();
  set.NoteUse(page);
  AcquireFrom(&set.pages[page]);
  const int error = Exchange(set.pages[page], header, in, out, caller);
  ReleaseTo(&set.pages[page]);
  GiveBack(half, number);
  return error;
}

void CallPages::WakeCallers() {
  CallPageSet* const set = set_.load();
  if (set == nullptr) return;
  for (CallPage& page : set->UsedPages()) {
    syscall(SYS_futex, &page.state, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }
}

}  // namespace rdmaemu::client
