#include "emulator/embedded/sleeper.h"

#include <pthread.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "emulator/embedded/held_cancellation.h"
#include "emulator/embedded/libc_waits.h"
#include "emulator/embedded/process_host.h"

namespace rdmaemu::embedded {
namespace {

// A plain pointer without a destructor. A destructor of the program's thread-specific data may
// still wait after this thread's destructors have run.
thread_local Sleeper* t_sleeper = nullptr;

constexpr int64_t kNoKey = -1;
constinit std::atomic<int64_t> g_sleeper_key{kNoKey};

// No static variable of the function: a child of fork(2) would wait for ever for a thread that was
// initializing it. Of two threads that make a key, one deletes its own.
pthread_key_t SleeperKey() {
  int64_t known = g_sleeper_key.load(std::memory_order_acquire);
  if (known != kNoKey) return static_cast<pthread_key_t>(known);
  pthread_key_t made;
  pthread_key_create(&made, [](void* sleeper) {
    t_sleeper = nullptr;
    delete static_cast<Sleeper*>(sleeper);
  });
  if (g_sleeper_key.compare_exchange_strong(known, int64_t{made})) return made;
  pthread_key_delete(made);
  return static_cast<pthread_key_t>(known);
}

}  // namespace

Sleeper& Sleeper::OfThread() {
  if (t_sleeper == nullptr) {
    t_sleeper = new Sleeper;
    pthread_setspecific(SleeperKey(), t_sleeper);
  }
  return *t_sleeper;
}

Sleeper::~Sleeper() { ProcessHost::Get().Forget(*this); }

void Sleeper::Prepare(uint32_t forks) {
  if (std::exchange(forks_, forks) != forks) {
    wake_.Reset();
    thread_ = gettid();
  }
  if (!wake_.IsOpen()) {
    wake_ = runtime::GuestFd(runtime::UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  }
  is_roused_ = false;
  if (!wake_.IsOpen()) return;
  uint64_t earlier;
  [[maybe_unused]] const ssize_t got = Libc().read(wake_.get(), &earlier, sizeof earlier);
}

int Sleeper::Sleep(const std::optional<Duration>& limit, int wake_fd) {
  sleeping_on_.assign(what_.fds.begin(), what_.fds.end());
  const Duration longest = wake_.IsOpen() ? kLongestSleep : kLongestSleepUnwoken;
  if (wake_.IsOpen()) sleeping_on_.push_back({wake_.get(), POLLIN, 0});
  if (wake_fd >= 0) sleeping_on_.push_back({wake_fd, POLLIN, 0});
  const timespec timeout = ToTimespec(std::min(limit.value_or(longest), longest));
  const HeldCancellation::Released released;
  const int ready = Libc().ppoll(sleeping_on_.data(), sleeping_on_.size(), &timeout, what_.mask);
  return ready < 0 ? errno : 0;
}

void Sleeper::Expire() {
  if (is_signalled()) return;
  has_expired_ = is_roused_ = true;
  // The program's other waiting threads also wake up, which they must expect
  // (pthread_cond_timedwait(3)). The condition variable exists while this thread waits for it.
  if (what_.condition != nullptr) Libc().cond_broadcast(what_.condition);
}

void Sleeper::Wake() {
  if (what_.is_in_libc) return;
  is_roused_ = true;
  if (!wake_.IsOpen()) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = write(wake_.get(), &one, sizeof one);
}

bool Sleeper::IsHeldUp() const {
  if (!what_.is_in_libc || what_.mutex == nullptr) return false;
  const pid_t owner = __atomic_load_n(&what_.mutex->__data.__owner, __ATOMIC_RELAXED);
  return owner != 0 && owner != thread_;
}

bool Sleeper::IsIdle() const {
  if (is_roused_ || is_signalled_) return false;
  return what_.fds.empty() || CountReady(what_.fds) == 0;
}

}  // namespace rdmaemu::embedded
