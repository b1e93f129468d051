// The one embedded host of a process, and how threads share it: one lock; who has to wait for
// another thread sleeps outside it and is woken by every call that may have changed something.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "emulator/embedded/embedded_host.h"
#include "shim/client/client_abi.h"

namespace rdmaemu::embedded {

class ProcessHost {
 public:
  // Never destroyed: threads may be in it when the program ends.
  static ProcessHost& Get();

  // Makes it the host of this process's libibverbs; the message says why not, with an errno.
  struct Refusal {
    int error;
    std::string message;
  };
  tl::expected<void, Refusal> Open(const EmbeddedOptions& options);
  bool Close();  // false: there is none

  bool IsOpen() {
    const std::lock_guard lock(mutex_);
    return host_ != nullptr;
  }
  // Calls `use` with the host under the lock and wakes who waits; ENOENT when there is none.
  template <class Use>
  int With(Use&& use) {
    const std::lock_guard lock(mutex_);
    if (host_ == nullptr) return ENOENT;
    const int error = use(*host_);
    WakeWaiters();
    return error;
  }

 private:
  // A thread that sleeps until its counter is raised or something changed.
  class Sleeper;

  static int Call(uint32_t op, const void* in, uint32_t in_size, void* out, uint32_t out_size,
                  uint32_t* out_filled, int* descriptors, uint32_t descriptor_count);
  static void Ring();
  static int Wait(int counter_fd);
  static void Idle();
  static const rdmaemu_embedded_host kFunctions;

  int WaitFor(int counter_fd);
  void WakeWaiters();

  std::mutex mutex_;
  std::unique_ptr<EmbeddedHost> host_;
  std::vector<Sleeper*> sleepers_;
};

}  // namespace rdmaemu::embedded
