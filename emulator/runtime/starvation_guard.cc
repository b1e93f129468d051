#include "emulator/runtime/starvation_guard.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <system_error>

#include "emulator/runtime/process_state.h"

namespace rdmaemu::runtime {
namespace {

Duration ReadClock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace

StarvationGuard::~StarvationGuard() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

bool StarvationGuard::Watch(const cpu_set_t& kept, const cpu_set_t& before) {
  Watched watched{.thread = gettid(), .clock = {}, .kept = kept, .before = before, .rule = {}};
  if (pthread_getcpuclockid(pthread_self(), &watched.clock) != 0) return false;
  if (!thread_.joinable()) {
    // The process's signals are the other threads'. A thread inherits the mask.
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    try {
      thread_ = std::thread([this] { Run(); });
    } catch (const std::system_error&) {  // RLIMIT_NPROC, for instance
    }
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
    if (!thread_.joinable()) return false;
  }
  // It has inherited the affinity, too.
  if (pthread_setaffinity_np(thread_.native_handle(), sizeof before, &before) != 0) return false;
  {
    const std::lock_guard lock(mutex_);
    watched_ = watched;
  }
  changed_.notify_one();
  return true;
}

void StarvationGuard::Ignore() {
  const std::lock_guard lock(mutex_);
  watched_.reset();
}

void StarvationGuard::Run() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    if (!watched_) {
      changed_.wait(lock);
      continue;
    }
    changed_.wait_for(lock, interval_ * watched_->rule.intervals());
    if (!ends_ && watched_) Look(*watched_);
  }
}

void StarvationGuard::Look(Watched& watched) {
  const std::optional<ProcessState> state = StateOf(watched.thread);
  if (!state || !watched.rule.IsStarved(ReadClock(watched.clock), state->is_ready())) return;
  Free(watched);
  watched_.reset();
}

void StarvationGuard::Free(const Watched& watched) {
  cpu_set_t now;
  // Another process may have changed the affinity (taskset(1)).
  if (sched_getaffinity(watched.thread, sizeof now, &now) != 0 || !CPU_EQUAL(&now, &watched.kept)) {
    return;
  }
  is_freed_ = sched_setaffinity(watched.thread, sizeof watched.before, &watched.before) == 0;
}

}  // namespace rdmaemu::runtime
