// A thread's wait in ProcessHost. The destructor ends the wait, even when the thread is cancelled.
#pragma once

#include <mutex>
#include <optional>

#include "emulator/embedded/process_host.h"

namespace rdmaemu::embedded {

class ProcessHost::Registration {
 public:
  Registration(ProcessHost& home, std::unique_lock<HostsMutex>& lock, const WaitsFor& what)
      : home_(home), lock_(lock), sleeper_(Sleeper::OfThread()) {
    sleeper_.Begin(what);
    home_.sleepers_.push_back(&sleeper_);
  }
  ~Registration() {
    if (!lock_.owns_lock()) lock_.lock();
    std::erase(home_.sleepers_, &sleeper_);
    home_.ForgetSignals(sleeper_);
    home_.PassOnLook(sleeper_);
    if (home_.driven_ != nullptr) home_.driven_->Resume();
    if (home_.driver_ == &sleeper_) {  // another thread takes over
      home_.driver_ = nullptr;
      home_.WakeWaiters();
    }
    sleeper_.NoteSeen(home_.changes_);
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  // Makes the thread also wait for `wake_fd`, until another thread waits for it instead. -1: does
  // nothing.
  void WaitForOthersToo(int wake_fd) {
    if (wake_fd < 0) return;
    home_.driver_ = &sleeper_;
    wake_fd_ = wake_fd;
  }
  // Sleeps without the lock. Returns 0 or EINTR.
  int Sleep(const std::optional<Duration>& limit) {
    sleeper_.Prepare(home_.forks_);
    const int wake_fd = home_.driver_ == &sleeper_ ? wake_fd_ : -1;
    lock_.unlock();
    const int error = sleeper_.Sleep(limit, wake_fd);
    lock_.lock();
    return error;
  }

 private:
  ProcessHost& home_;
  std::unique_lock<HostsMutex>& lock_;
  Sleeper& sleeper_;
  int wake_fd_ = -1;
};

}  // namespace rdmaemu::embedded
