#include "emulator/embedded/process_host.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "emulator/embedded/call_routing.h"
#include "emulator/embedded/libc_waits.h"
#include "emulator/embedded/registration.h"
#include "emulator/embedded/threads.h"
#include "emulator/embedded/verbs_library.h"
#include "emulator/host/faults/words.h"
#include "shim/client/race_detector.h"

namespace rdmaemu::embedded {
namespace {

// Takes one from a counter. Returns 0, EAGAIN if it is empty, or the errno of the descriptor.
int TakeOne(int counter_fd) {
  uint64_t value;
  iovec into{&value, sizeof value};
  return preadv2(counter_fd, &into, 1, -1, RWF_NOWAIT) == sizeof value ? 0 : errno;
}

bool IsNonBlocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_NONBLOCK) != 0;
}

auto* FindEmbed() { return FindInLibrary<decltype(rdmaemu_client_embed)>("rdmaemu_client_embed"); }

// The host that a thread is on, for one opening of the hosts.
struct Entered {
  uint64_t opening = 0;
  uint32_t number = 0;
};
thread_local Entered t_entered;
thread_local int t_locks = 0;
// The pipe between the two sides of a fork by this thread.
struct Fork {
  runtime::UniqueFd parent, child;
};
thread_local Fork t_fork;

}  // namespace

std::atomic<bool> ProcessHost::has_hosts_{false};

void HostsMutex::lock() {
  t_locks++;  // count before locking: a signal handler may run in between
  waiting_++;
  mutex_.lock();
  waiting_--;
  client::AcquireFrom(
      this);  // ThreadSanitizer ignores locks taken inside its own functions for waits
}
void HostsMutex::unlock() {
  client::ReleaseTo(this);
  mutex_.unlock();
  t_locks--;
}
void HostsMutex::Reset() {
  pthread_mutex_init(mutex_.native_handle(), nullptr);
  waiting_ = 0;
  t_locks = 0;
}
bool HostsMutex::IsMine() { return t_locks > 0; }

const rdmaemu_embedded_host ProcessHost::kFunctions = {Call, Ring, Wait, Idle};

ProcessHost& ProcessHost::Get() {
  static ProcessHost* const host = [] {
    auto* const made = new ProcessHost;
    // BeforeFork takes no lock, because libibverbs locks its own mutex before a fork and calls this
    // library while it holds that mutex.
    pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild);
    return made;
  }();
  return *host;
}

void ProcessHost::AfterForkInChild() {
  ProcessHost& home = Get();
  home.mutex_.Reset();
  has_hosts_ = false;
  if (home.domain_time_ == nullptr) ProgramClock::End();
  home.driven_ = nullptr;
  home.driver_ = nullptr;
  auto* const of_parent =
      new OfParent{home.hosts_.release(), home.domain_time_.release(), {}, home.of_parent_};
  // Copy byte by byte, because another thread may have been changing the vector.
  std::memcpy(static_cast<void*>(&of_parent->sleepers), &home.sleepers_, sizeof home.sleepers_);
  new (&home.sleepers_) std::vector<Sleeper*>;
  new (&home.spinning_) std::vector<Sleeper*>;
  home.looker_ = nullptr;
  home.of_parent_ = of_parent;
  home.openings_++;
  home.forks_++;
  if (of_parent->domain_time == nullptr) return;
  home.timers_.ForgetInChild();
  home.JoinTimeOfHosts();
  t_fork.child.Reset();
}

void ProcessHost::BeforeFork() {
  if (!DomainTime::IsJoined()) return;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  t_fork.parent.Reset(ends[0]);
  t_fork.child.Reset(ends[1]);
}

void ProcessHost::AfterForkInParent() {
  if (!t_fork.parent) return;
  t_fork.child.Reset();
  // Wait until the child closes its end of the pipe, or ends.
  char byte;
  while (Libc().read(t_fork.parent.get(), &byte, 1) < 0 && errno == EINTR) {
  }
  t_fork.parent.Reset();
}

void ProcessHost::JoinTimeOfHosts() {
  auto joined = DomainTime::Join(timers_, [this](pid_t thread) {
    return std::ranges::any_of(sleepers_,
                               [=](const Sleeper* each) { return each->thread() == thread; });
  });
  if (!joined) {
    std::fprintf(stderr, "rdmaemu: the program runs in the machine's time: %s\n",
                 joined.error().c_str());
    return;
  }
  const std::lock_guard lock(mutex_);
  domain_time_ = std::move(*joined);
  driven_ = domain_time_.get();
  openings_++;
  ProgramClock::Begin(runtime::TimeDomain::kClocks, domain_time_->domain().clock_bases());
  ProgramClock::Publish(driven_->Now());
  has_hosts_ = true;
  // The program may wait by functions that this library does not see.
  StartDriver();
}

void ProcessHost::LeaveTimeOfHosts() {
  const std::lock_guard lock(mutex_);
  if (domain_time_ == nullptr) return;
  driven_ = nullptr;
  domain_time_.reset();
  has_hosts_ = false;
  ProgramClock::End();
}

void ProcessHost::Resume() {
  const std::lock_guard lock(mutex_);
  if (driven_ == nullptr) return;
  driven_->Resume();
  if (driver_ != nullptr) driver_->Wake();  // it reports the next wait of its thread
}

void ProcessHost::LookAtTimeAgain() {
  const std::lock_guard lock(mutex_);
  if (driven_ != nullptr) driven_->LookAgain();
}

namespace {

// Returns true for the command rdmaemu, which uses the machine's time.
bool IsCommand() {
  const char* const command = std::getenv("RDMAEMU_BIN");
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  return command != nullptr && length > 0 &&
         std::string_view(path, static_cast<size_t>(length)) == command;
}

__attribute__((constructor)) void JoinBeforeMain() {
  const char* const asked = std::getenv(DomainTime::kVariable);
  if (asked == nullptr || std::strcmp(asked, "1") != 0) return;
  if (IsCommand()) {
    DomainTime::Leave();
  } else {
    ProcessHost::Get().JoinTimeOfHosts();
  }
}

__attribute__((destructor)) void LeaveAfterMain() {
  if (DomainTime::IsJoined()) ProcessHost::Get().LeaveTimeOfHosts();
}

}  // namespace

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
  auto made = EmbeddedHosts::Open(
      options,
      [this, ended](uint32_t number) {
        if (ended != nullptr) ended(number);
        WakeWaiters();
      },
      options.program_time ? &timers_ : nullptr);
  if (!made) return tl::unexpected(Refusal{EINVAL, std::move(made.error())});
  {
    const std::lock_guard lock(mutex_);
    if (domain_time_ != nullptr) {
      return tl::unexpected(
          Refusal{EBUSY,
                  "this process uses the time of its host processes; run it without `rdmaemu run "
                  "--program-time`, or open no embedded host"});
    }
    if (hosts_ != nullptr) {
      return tl::unexpected(
          Refusal{EBUSY,
                  "this process has a host already; close it first, or add another one with "
                  "rdmaemu_host_add"});
    }
    hosts_ = std::move(*made);
    driven_ = hosts_.get();
    openings_++;
    has_reported_stall_ = has_reported_busy_ = has_timer_driver_ = false;
    if (options.program_time) ProgramClock::Begin();
    has_hosts_ = true;
  }
  const int error = embed(&kFunctions);
  if (error == 0) {
    const char* const asked = std::getenv("RDMAEMU_DRIVER_THREAD");
    if (asked != nullptr && std::strcmp(asked, "1") == 0) StartDriver();
    return {};
  }
  const std::lock_guard lock(mutex_);
  hosts_.reset();
  driven_ = nullptr;
  has_hosts_ = false;
  ProgramClock::End();
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
    driven_ = nullptr;
    has_hosts_ = false;
    ProgramClock::End();
    timers_.Disarm();
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

int ProcessHost::Call(uint32_t op, const void* in, uint32_t in_size, void* out, uint32_t out_size,
                      uint32_t* out_filled, int* descriptors, uint32_t descriptor_count) {
  CallBuffers call{op, in, in_size, out, out_size, 0, descriptors, descriptor_count};
  const int error = Get().DoCall(call);
  if (out_filled != nullptr) *out_filled = call.filled;
  return error;
}

int ProcessHost::DoCall(CallBuffers& call) {
  const HeldSignals held(ProgramClock::IsOfHosts());
  std::unique_lock lock(mutex_);
  if (hosts_ == nullptr) return EIO;
  EndSpin();
  const uint64_t opening = openings_;
  const uint32_t number = HostOfCall(call.op, call.in, call.in_size, entered());
  if (hosts_->At(number) == nullptr) return EINVAL;
  // The host answers late replies in order (EmbeddedHost::TakeLateReply), so threads wait behind a
  // call that a rule holds. Calls that no rule can hold do not wait, because such a call may
  // release the held call.
  while (hosts_->At(number)->owes_reply() && CanFail(call.op)) {
    Registration registration(
        *this, lock, {.mask = held.before(), .what = "a call behind one that a rule holds"});
    registration.Sleep(std::nullopt);
    if (!IsStill(opening)) return EIO;
  }
  const std::optional<int> error = hosts_->Call(*hosts_->At(number), call);
  // Wake up threads that wait for a rule, because a call may have reached the rule.
  if (!error) WakeWaiters();
  const int result = error ? *error : AwaitReply(lock, number, call, held.before());
  WakeWaiters();
  Sleeper::OfThread().NoteSeen(changes_);
  return result;
}

// The caller waits, so its time advances. In a program of one thread time advances even with a
// manual clock. The host and other threads continue meanwhile.
int ProcessHost::AwaitReply(std::unique_lock<HostsMutex>& lock, uint32_t number, CallBuffers& call,
                            const sigset_t* mask) {
  const uint64_t opening = openings_;
  const std::string what = "the call " + CallSubject(call.op) + ", which a rule holds";
  Registration registration(*this, lock, {.mask = mask, .what = what.c_str()});
  for (;;) {
    if (const auto error = hosts_->TakeLateReply(*hosts_->At(number), call)) return *error;
    const EmbeddedHosts::Pause pause = hosts_->GoOn(IsAlone(), FirstLimit());
    if (pause.moved || (pause.endless && hosts_->Jump())) {
      AfterMove();
      continue;
    }
    if (pause.endless) {  // a barrier holds the only thread
      ReportStall();
      hosts_->At(number)->AbandonCall();
      return EDEADLK;
    }
    registration.Sleep(pause.machine);
    if (!IsStill(opening)) return EIO;
  }
}

void ProcessHost::Ring() {
  Get().With([](EmbeddedHosts& hosts) {
    hosts.Ring();
    return 0;
  });
}

void ProcessHost::Idle() { Get().Look(/*found_nothing=*/true); }

int ProcessHost::Wait(int counter_fd) { return Get().WaitFor(counter_fd); }

// A cancellation point, as read(2), which this function replaces.
int ProcessHost::WaitFor(int counter_fd) {
  pollfd counter{counter_fd, POLLIN, 0};
  for (bool has_looked = false;;) {
    if (!Look(has_looked)) return EIO;
    const int taken = TakeOne(counter_fd);
    if (taken != EAGAIN) return taken;
    if (IsNonBlocking(counter_fd)) {
      if (std::exchange(has_looked, true)) return EAGAIN;
      continue;
    }
    switch (DriveWait({.fds = {&counter, 1}, .what = "an RDMA event"}, std::nullopt)) {
      case WaitEnd::kReady:
      case WaitEnd::kTimedOut:
        continue;
      case WaitEnd::kInterrupted:
        return EINTR;
      case WaitEnd::kDeadlock:
        return EDEADLK;
      case WaitEnd::kNoHosts:
        return EIO;
    }
  }
}

}  // namespace rdmaemu::embedded
