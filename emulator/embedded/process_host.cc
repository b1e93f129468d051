#include "emulator/embedded/process_host.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/single_threaded.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "emulator/embedded/call_routing.h"
#include "emulator/embedded/verbs_library.h"
#include "emulator/host/faults/words.h"

namespace rdmaemu::embedded {
namespace {

bool IsAlone() { return __libc_single_threaded != 0; }

// Takes one from a counter: 0, EAGAIN when it is empty, or what is wrong with the descriptor.
int TakeOne(int counter_fd) {
  uint64_t value;
  iovec into{&value, sizeof value};
  return preadv2(counter_fd, &into, 1, -1, RWF_NOWAIT) == sizeof value ? 0 : errno;
}

bool IsNonBlocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_NONBLOCK) != 0;
}

timespec ToTimespec(Duration duration) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(duration);
  return {static_cast<time_t>(seconds.count()), static_cast<long>((duration - seconds).count())};
}

auto* FindEmbed() { return FindInLibrary<decltype(rdmaemu_client_embed)>("rdmaemu_client_embed"); }

// Of which opening's hosts a thread is on which.
struct Entered {
  uint64_t opening = 0;
  uint32_t number = 0;
};
thread_local Entered t_entered;

}  // namespace

class ProcessHost::Sleeper {
 public:
  static Sleeper& OfThread() {
    thread_local Sleeper sleeper;
    return sleeper;
  }
  ~Sleeper() {
    ProcessHost& home = Get();
    const std::lock_guard lock(home.mutex_);
    std::erase(home.sleepers_, this);
  }
  // Under the lock, before the sleep.
  bool Prepare() {
    ProcessHost& home = Get();
    // A parent's counter wakes the parent.
    if (std::exchange(forks_, home.forks_) != home.forks_) wake_.Reset();
    if (!wake_) wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake_) return false;
    uint64_t earlier;
    [[maybe_unused]] const ssize_t got = read(wake_.get(), &earlier, sizeof earlier);
    std::vector<Sleeper*>& all = home.sleepers_;
    if (std::find(all.begin(), all.end(), this) == all.end()) all.push_back(this);
    return true;
  }
  // Outside the lock. 0 or EINTR.
  int Sleep(int counter_fd, const std::optional<Duration>& limit) const {
    pollfd fds[2] = {{counter_fd, POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    const timespec timeout = ToTimespec(limit.value_or(Duration::zero()));
    return ppoll(fds, 2, limit ? &timeout : nullptr, nullptr) < 0 ? errno : 0;
  }
  void Wake() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t put = write(wake_.get(), &one, sizeof one);
  }

 private:
  runtime::UniqueFd wake_;
  uint32_t forks_ = 0;
};

const rdmaemu_embedded_host ProcessHost::kFunctions = {Call, Ring, Wait, Idle};

ProcessHost& ProcessHost::Get() {
  static ProcessHost* const host = [] {
    auto* const made = new ProcessHost;
    // Nothing is locked before a fork: libibverbs locks its own there, and calls this in it.
    pthread_atfork(nullptr, nullptr, AfterForkInChild);
    return made;
  }();
  return *host;
}

void ProcessHost::AfterForkInChild() {
  ProcessHost& home = Get();
  pthread_mutex_init(home.mutex_.native_handle(), nullptr);
  auto* const of_parent = new OfParent{home.hosts_.release(), {}, home.of_parent_};
  // Byte by byte: another thread may have been changing it.
  std::memcpy(static_cast<void*>(&of_parent->sleepers), &home.sleepers_, sizeof home.sleepers_);
  new (&home.sleepers_) std::vector<Sleeper*>;
  home.of_parent_ = of_parent;
  home.openings_++;
  home.forks_++;
}

tl::expected<void, ProcessHost::Refusal> ProcessHost::Open(const EmbeddedOptions& options) {
  auto* const embed = FindEmbed();
  if (embed == nullptr) {
    return tl::unexpected(Refusal{
        ENOTSUP,
        "this process does not use rdmaemu's libibverbs.so.1, which gives it the host's devices; "
        "link with the flags of `pkg-config --libs rdmaemu`, or put the directory of rdmaemu's "
        "libraries into LD_LIBRARY_PATH"});
  }
  auto* const ended =
      FindInLibrary<decltype(rdmaemu_client_host_ended)>("rdmaemu_client_host_ended");
  auto made = EmbeddedHosts::Open(options, [this, ended](uint32_t number) {
    if (ended != nullptr) ended(number);
    WakeWaiters();
  });
  if (!made) return tl::unexpected(Refusal{EINVAL, std::move(made.error())});
  {
    const std::lock_guard lock(mutex_);
    if (hosts_ != nullptr) {
      return tl::unexpected(
          Refusal{EBUSY,
                  "this process has a host already; close it first, or add another one with "
                  "rdmaemu_host_add"});
    }
    hosts_ = std::move(*made);
    openings_++;
  }
  const int error = embed(&kFunctions);
  if (error == 0) return {};
  const std::lock_guard lock(mutex_);
  hosts_.reset();
  return tl::unexpected(Refusal{
      error, error == EBUSY ? "this process is a client of a host process already; open the host "
                              "before the first use of libibverbs or librdmacm"
                            : std::string("the host did not start: ") + std::strerror(error)});
}

tl::expected<void, ProcessHost::Refusal> ProcessHost::Add(const EmbeddedOptions& options) {
  uint32_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    if (hosts_ == nullptr) {
      return tl::unexpected(Refusal{
          ENOENT, "this process has no embedded host; open the first one with rdmaemu_open"});
    }
    const auto made = hosts_->Add(options);
    if (!made) return tl::unexpected(Refusal{EINVAL, made.error()});
    number = (*made)->number();
  }
  const ThreadOnHost on(number);
  auto* const join = FindInLibrary<decltype(rdmaemu_client_join)>("rdmaemu_client_join");
  const int error = join == nullptr ? ENOTSUP : join(number);
  if (error == 0) return {};
  With([&](EmbeddedHosts& hosts) {
    hosts.End(*hosts.At(number));
    return 0;
  });
  return tl::unexpected(
      Refusal{error, std::string("the host did not start: ") + std::strerror(error)});
}

bool ProcessHost::Close() {
  std::unique_ptr<EmbeddedHosts> ended;
  {
    const std::lock_guard lock(mutex_);
    if (hosts_ == nullptr) return false;
    ended = std::move(hosts_);
    WakeWaiters();
  }
  if (auto* const embed = FindEmbed()) embed(nullptr);
  return true;
}

uint32_t ProcessHost::entered() const {
  return t_entered.opening == openings_ ? t_entered.number : 0;
}

void ProcessHost::Enter(uint32_t number) const { t_entered = {openings_, number}; }

ThreadOnHost::ThreadOnHost(uint32_t number) {
  ProcessHost& home = ProcessHost::Get();
  home.With([&](EmbeddedHosts&) {
    before_ = home.entered();
    home.Enter(number);
    return 0;
  });
}

ThreadOnHost::~ThreadOnHost() {
  ProcessHost& home = ProcessHost::Get();
  home.With([&](EmbeddedHosts&) {
    home.Enter(before_);
    return 0;
  });
}

void ProcessHost::WakeWaiters() {
  for (const Sleeper* sleeper : sleepers_) sleeper->Wake();
  sleepers_.clear();
}

int ProcessHost::Call(uint32_t op, const void* in, uint32_t in_size, void* out, uint32_t out_size,
                      uint32_t* out_filled, int* descriptors, uint32_t descriptor_count) {
  CallBuffers call{op, in, in_size, out, out_size, 0, descriptors, descriptor_count};
  const int error = Get().DoCall(call);
  if (out_filled != nullptr) *out_filled = call.filled;
  return error;
}

int ProcessHost::DoCall(CallBuffers& call) {
  std::unique_lock lock(mutex_);
  if (hosts_ == nullptr) return EIO;
  const uint64_t opening = openings_;
  const uint32_t number = HostOfCall(call.op, call.in, call.in_size, entered());
  if (hosts_->At(number) == nullptr) return EINVAL;
  // A process has one connection to its host: its threads wait behind a call that a rule holds up,
  // but for what no rule can, among which is what lets it go.
  while (hosts_->At(number)->owes_reply() && CanFail(call.op)) {
    Sleeper& sleeper = Sleeper::OfThread();
    if (!sleeper.Prepare()) return EMFILE;
    lock.unlock();
    sleeper.Sleep(-1, std::nullopt);
    lock.lock();
    if (!IsStill(opening)) return EIO;
  }
  const std::optional<int> error = hosts_->Call(*hosts_->At(number), call);
  // Who waits for a rule to fire is to see that a call has come to it.
  if (!error) WakeWaiters();
  const int result = error ? *error : AwaitReply(lock, number, call);
  WakeWaiters();
  return result;
}

// The caller waits, so its time passes: in a program of one thread also where the clock moves only
// when told. The host and other threads go on meanwhile.
int ProcessHost::AwaitReply(std::unique_lock<std::mutex>& lock, uint32_t number,
                            CallBuffers& call) {
  const uint64_t opening = openings_;
  for (;;) {
    if (const auto error = hosts_->TakeLateReply(*hosts_->At(number), call)) return *error;
    const EmbeddedHosts::Pause pause = hosts_->GoOn(IsAlone());
    if (pause.moved || (pause.endless && hosts_->Jump())) {
      WakeWaiters();
      continue;
    }
    if (pause.endless) {  // the only thread is the one that a barrier holds
      hosts_->At(number)->AbandonCall();
      return EDEADLK;
    }
    Sleeper& sleeper = Sleeper::OfThread();
    const bool is_woken = sleeper.Prepare();  // without a descriptor it looks again and again
    lock.unlock();
    if (is_woken) {
      sleeper.Sleep(-1, pause.machine);
    } else {
      std::this_thread::yield();
    }
    lock.lock();
    if (!IsStill(opening)) return EIO;
  }
}

int ProcessHost::WaitUntil(const std::function<bool(EmbeddedHosts&)>& holds,
                           Duration machine_limit) {
  const Time until = runtime::RealNow() + machine_limit;
  std::unique_lock lock(mutex_);
  const uint64_t opening = openings_;
  while (IsStill(opening)) {
    if (holds(*hosts_)) return 0;
    const Duration left = until - runtime::RealNow();
    if (left <= Duration::zero()) return ETIMEDOUT;
    const EmbeddedHosts::Pause pause = hosts_->GoOn(IsAlone());
    if (pause.moved) {
      WakeWaiters();
      continue;
    }
    if (pause.endless) return EDEADLK;
    Sleeper& sleeper = Sleeper::OfThread();
    if (!sleeper.Prepare()) return EMFILE;
    lock.unlock();
    sleeper.Sleep(-1, std::min(left, pause.machine.value_or(left)));
    lock.lock();
  }
  return EIO;
}

void ProcessHost::Ring() {
  Get().With([](EmbeddedHosts& hosts) {
    hosts.Ring();
    return 0;
  });
}

void ProcessHost::Idle() {
  ProcessHost& home = Get();
  const std::lock_guard lock(home.mutex_);
  if (home.hosts_ == nullptr) return;
  home.hosts_->Look(IsAlone());
  if (home.hosts_->owes_replies()) home.WakeWaiters();
}

int ProcessHost::Wait(int counter_fd) { return Get().WaitFor(counter_fd); }

// A cancellation point where it sleeps, as the read(2) that it stands for: nothing is held there.
int ProcessHost::WaitFor(int counter_fd) {
  Sleeper& sleeper = Sleeper::OfThread();
  for (bool looked = false;;) {
    EmbeddedHosts::Pause pause;
    {
      const std::lock_guard lock(mutex_);
      if (hosts_ == nullptr) return EIO;
      hosts_->Settle();
      const int taken = TakeOne(counter_fd);
      if (taken != EAGAIN) return taken;
      if (IsNonBlocking(counter_fd)) {
        if (std::exchange(looked, true)) return EAGAIN;
        hosts_->Look(IsAlone());
        continue;
      }
      pause = hosts_->GoOn(IsAlone());
      // Other waits have a counter, which what has happened raised.
      if (pause.moved && hosts_->owes_replies()) WakeWaiters();
      if (pause.moved) continue;
      if (pause.endless) return EDEADLK;
      if (!sleeper.Prepare()) return EMFILE;
    }
    if (const int error = sleeper.Sleep(counter_fd, pause.machine); error != 0) return error;
  }
}

}  // namespace rdmaemu::embedded
