// The embedded hosts of a process, and how threads share them: one lock; who has to wait for
// another thread sleeps outside it and is woken by every call that may have changed something.
// Each thread is on one of the hosts, as in a network namespace: what it makes anew is there.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "emulator/embedded/embedded_hosts.h"
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
  bool Close();  // all hosts; false: there is none
  // ENOENT: there is no first host.
  tl::expected<void, Refusal> Add(const EmbeddedOptions& options);

  bool IsOpen() {
    const std::lock_guard lock(mutex_);
    return hosts_ != nullptr;
  }
  // Calls `use` with the hosts under the lock and wakes who waits; ENOENT when there are none.
  template <class Use>
  int With(Use&& use) {
    const std::lock_guard lock(mutex_);
    if (hosts_ == nullptr) return ENOENT;
    const int error = use(*hosts_);
    WakeWaiters();
    return error;
  }

  // Drives the hosts until `holds` answers true, under the lock. 0, ETIMEDOUT after so much time of
  // the machine, EDEADLK where nothing can happen any more, EIO when the hosts were closed.
  int WaitUntil(const std::function<bool(EmbeddedHosts&)>& holds, Duration machine_limit);

  // The host that the calling thread is on, by its number: the first one until it has entered
  // another. Under the lock, in With.
  uint32_t entered() const;
  void Enter(uint32_t number) const;

 private:
  // A thread that sleeps until its counter is raised or something changed.
  class Sleeper;

  static int Call(uint32_t op, const void* in, uint32_t in_size, void* out, uint32_t out_size,
                  uint32_t* out_filled, int* descriptors, uint32_t descriptor_count);
  static void Ring();
  static int Wait(int counter_fd);
  static void Idle();
  static const rdmaemu_embedded_host kFunctions;

  int DoCall(CallBuffers& call);
  // In a forked child: what the parent's threads were in the midst of is nobody's here, and what
  // the hosts have (segments, counters, files) is the parent's.
  static void AfterForkInChild();
  // Waits until fault rules let the answer go. EDEADLK where nobody can any more.
  int AwaitReply(std::unique_lock<std::mutex>& lock, uint32_t number, CallBuffers& call);
  int WaitFor(int counter_fd);
  void WakeWaiters();
  // The opening that `opening` counted is still there.
  bool IsStill(uint64_t opening) const { return hosts_ != nullptr && opening == openings_; }

  std::mutex mutex_;
  std::unique_ptr<EmbeddedHosts> hosts_;
  uint64_t openings_ = 0;
  std::vector<Sleeper*> sleepers_;
  // What a forked child has of its parent. It is in no state to be destroyed here, and a leak
  // checker is to find it.
  struct OfParent {
    EmbeddedHosts* hosts;
    std::vector<Sleeper*> sleepers;
    OfParent* of_its_parent;
  };
  OfParent* of_parent_ = nullptr;
  uint32_t forks_ = 0;  // between the first process and this one
};

// The calling thread is on that host as long as the object lives; nothing else is locked.
class ThreadOnHost {
 public:
  explicit ThreadOnHost(uint32_t number);
  ~ThreadOnHost();
  ThreadOnHost(const ThreadOnHost&) = delete;
  ThreadOnHost& operator=(const ThreadOnHost&) = delete;

 private:
  uint32_t before_ = 0;
};

}  // namespace rdmaemu::embedded
