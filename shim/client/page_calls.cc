#include "shim/client/page_calls.h"

#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "shim/client/machine_clock.h"
#include "shim/client/system.h"
#include "shim/client/yield_budget.h"

namespace rdmaemu::client {
namespace {

// A host that is awake on another processor answers most calls during the spins. A host that waits
// for this processor runs during the yields that follow.
constexpr int kSpins = 40;
constexpr long kLookForHostNanoseconds =
    100'000'000;  // how often to check the host, in case its end was not noticed

bool Answered(CallPage& page) { return page.State() == CallPage::kAnswered; }

// Returns false if the host has ended.
bool AwaitAnswer(CallPage& page, const PageCaller& caller) {
  for (int i = 0; i < kSpins; i++) {
    if (Answered(page)) return true;
  }
  for (YieldBudget budget; budget.Take();) {
    sched_yield();
    if (Answered(page)) return true;
  }
  std::atomic_ref sleeps(page.caller_sleeps);
  sleeps.store(1, std::memory_order_seq_cst);
  for (uint32_t state = page.State(); state != CallPage::kAnswered && !caller.gone.load();
       state = page.State()) {
    const timespec limit{0, kLookForHostNanoseconds};
    // The time-out counts the machine's time, even in program time.
    if (MachineSyscall()(SYS_futex, &page.state, FUTEX_WAIT, state, &limit, nullptr, 0) != 0 &&
        errno == ETIMEDOUT && caller.host_has_ended()) {
      break;
    }
  }
  sleeps.store(0, std::memory_order_relaxed);
  return Answered(page);
}

int Exchange(CallPage& page, CallHeader header, const void* in, Buffer& out,
             const PageCaller& caller) {
  page.call = header;
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

void CallPages::Init() {
  if (CallPageSet* const set = set_.exchange(nullptr)) munmap(set, sizeof *set);
  for (pthread_mutex_t& each : mutexes_) pthread_mutex_init(&each, nullptr);
}

void CallPages::Map(int fd) {
  struct stat status;
  if (SysFileStatus(fd, &status) != 0 || status.st_size < off_t{sizeof(CallPageSet)}) return;
  void* const bytes = SysMapShared(fd, sizeof(CallPageSet));
  if (bytes != MAP_FAILED) set_ = static_cast<CallPageSet*>(bytes);
}

// Threads take the first free page, because the host looks at the pages of recent calls only.
uint32_t CallPages::LockOne() {
  for (uint32_t i = 0; i < CallPageSet::kPages; i++) {
    if (pthread_mutex_trylock(&mutexes_[i]) == 0) return i;
  }
  const uint32_t number = next_++ % CallPageSet::kPages;
  pthread_mutex_lock(&mutexes_[number]);
  return number;
}

int CallPages::Call(CallHeader header, const void* in, Buffer& out, const PageCaller& caller) {
  const uint32_t number = LockOne();
  const int error = Exchange(set_.load()->pages[number], header, in, out, caller);
  pthread_mutex_unlock(&mutexes_[number]);
  return error;
}

void CallPages::WakeCallers() {
  CallPageSet* const set = set_.load();
  if (set == nullptr) return;
  for (CallPage& page : set->pages) {
    syscall(SYS_futex, &page.state, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }
}

}  // namespace rdmaemu::client
