#include "emulator/embedded/program_timers.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "emulator/embedded/libc_waits.h"

namespace rdmaemu::embedded {
namespace {

bool g_signalled = false;  // under ProcessHost's lock

// Returns the kernel's number of an eventfd (proc(5), fdinfo), or nullopt for other descriptors.
std::optional<uint64_t> EventfdId(int fd) {
  char path[40], text[512];
  snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
  const runtime::UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  const ssize_t bytes = Libc().read(file.get(), text, sizeof text - 1);
  if (bytes <= 0) return std::nullopt;
  text[bytes] = '\0';
  constexpr char kKey[] = "eventfd-id:";
  const char* const key = strstr(text, kKey);
  if (key == nullptr) return std::nullopt;
  return strtoull(key + strlen(kKey), nullptr, 10);
}

// Returns true if the program has a descriptor of that eventfd other than `own`.
bool IsOpen(uint64_t id, int own) {
  DIR* const all = opendir("/proc/self/fd");
  if (all == nullptr) return true;
  bool found = false;
  while (const dirent* const each = readdir(all)) {
    const int fd = atoi(each->d_name);
    found = each->d_name[0] != '.' && fd != own && EventfdId(fd) == id;
    if (found) break;
  }
  closedir(all);
  return found;
}

class DescriptorTimer final : public ProgramTimer {
 public:
  DescriptorTimer(clockid_t clock, runtime::UniqueFd own, uint64_t id, int given)
      : ProgramTimer(clock), own_(std::move(own)), id_(id), given_(given) {}

  bool Expire(uint64_t times) override {
    // The program may have closed our descriptor and opened another file with the same number.
    if (EventfdId(own_.get()) != id_) {
      own_.Release();
      return false;
    }
    if (IsClosed()) return false;
    eventfd_write(own_.get(), times);
    return true;
  }
  bool IsClosed() const override { return EventfdId(given_) != id_ && !IsOpen(id_, own_.get()); }
  void ForgetExpirations() override {
    pollfd counted{own_.get(), POLLIN, 0};
    uint64_t count;
    if (EventfdId(own_.get()) == id_ && CountReady({&counted, 1}) == 1) {
      [[maybe_unused]] const ssize_t got = Libc().read(own_.get(), &count, sizeof count);
    }
  }

 private:
  runtime::UniqueFd own_;
  const uint64_t id_;
  const int given_;
};

bool IsPending(int signal) {
  sigset_t pending;
  return sigpending(&pending) == 0 && sigismember(&pending, signal) == 1;
}

class SignalTimer final : public ProgramTimer {
 public:
  SignalTimer(timer_t id, clockid_t clock, const sigevent& event)
      : ProgramTimer(clock), id_(id), event_(event) {}

  bool Expire(uint64_t times) override {
    if (event_.sigev_notify == SIGEV_NONE) return true;
    if (event_.sigev_notify == SIGEV_THREAD) {
      RunInThread();
      return true;
    }
    if (IsPending(event_.sigev_signo)) {
      overrun += times;
      return true;
    }
    overrun = times - 1;
    siginfo_t info{};
    info.si_signo = event_.sigev_signo;
    info.si_code = SI_TIMER;
    info.si_timerid = static_cast<int>(reinterpret_cast<intptr_t>(id_));
    info.si_overrun = OverrunCount();
    info.si_value = event_.sigev_value;
    const pid_t process = getpid();
    g_signalled = true;
    if (event_.sigev_notify == SIGEV_THREAD_ID) {
      syscall(SYS_rt_tgsigqueueinfo, process, event_._sigev_un._tid, info.si_signo, &info);
    } else {
      syscall(SYS_rt_sigqueueinfo, process, info.si_signo, &info);
    }
    return true;
  }

 private:
  // Starts a thread for each expiration, as the C library does.
  void RunInThread() {
    struct Run {
      void (*function)(sigval);
      sigval value;
    };
    auto* const run = new Run{event_.sigev_notify_function, event_.sigev_value};
    pthread_t thread;
    const int error = pthread_create(
        &thread, event_.sigev_notify_attributes,
        [](void* argument) -> void* {
          const std::unique_ptr<Run> run(static_cast<Run*>(argument));
          sigset_t none;
          sigemptyset(&none);
          pthread_sigmask(SIG_SETMASK, &none, nullptr);
          run->function(run->value);
          return nullptr;
        },
        run);
    if (error != 0) {
      delete run;
      return;
    }
    int state = PTHREAD_CREATE_JOINABLE;
    if (event_.sigev_notify_attributes != nullptr) {
      pthread_attr_getdetachstate(event_.sigev_notify_attributes, &state);
    }
    if (state == PTHREAD_CREATE_JOINABLE) pthread_detach(thread);
  }

  const timer_t id_;
  const sigevent event_;
};

class AlarmTimer final : public ProgramTimer {
 public:
  AlarmTimer() : ProgramTimer(CLOCK_REALTIME) {}
  bool Expire(uint64_t) override {
    g_signalled = true;
    siginfo_t info{};
    info.si_signo = SIGALRM;
    info.si_code = SI_KERNEL;  // as the kernel's alarm(2); only the first thread may send it
    if (syscall(SYS_rt_sigqueueinfo, getpid(), SIGALRM, &info) != 0) kill(getpid(), SIGALRM);
    return true;
  }
};

}  // namespace

ProgramTimers::ProgramTimers() : alarm_(std::make_unique<AlarmTimer>()) {}

void ProgramTimers::ForgetClosed() {
  if (descriptors_.size() < forget_at_) return;
  std::erase_if(descriptors_, [](const auto& each) { return each.second->IsClosed(); });
  forget_at_ = std::max(kFirstForget, 2 * descriptors_.size());
}

int ProgramTimers::CreateDescriptor(clockid_t clock, int flags) {
  ForgetClosed();
  if (descriptors_.size() >= kMaxTimers) {
    errno = EMFILE;
    return -1;
  }
  const int given = eventfd(0, flags);
  if (given < 0) return -1;
  runtime::UniqueFd own(fcntl(given, F_DUPFD_CLOEXEC, 0));
  const std::optional<uint64_t> id = EventfdId(given);
  if (!own || !id) {
    close(given);
    errno = EMFILE;
    return -1;
  }
  descriptors_[*id] = std::make_unique<DescriptorTimer>(clock, std::move(own), *id, given);
  return given;
}

ProgramTimer* ProgramTimers::OfDescriptor(int fd) {
  if (descriptors_.empty()) return nullptr;
  const std::optional<uint64_t> id = EventfdId(fd);
  if (!id) return nullptr;
  const auto found = descriptors_.find(*id);
  return found == descriptors_.end() ? nullptr : found->second.get();
}

bool ProgramTimers::CreateSignalling(timer_t id, clockid_t clock, const sigevent& event) {
  if (signalling_.size() >= kMaxTimers) return false;
  signalling_[id] = std::make_unique<SignalTimer>(id, clock, event);
  return true;
}

ProgramTimer* ProgramTimers::OfId(timer_t id) {
  const auto found = signalling_.find(id);
  return found == signalling_.end() ? nullptr : found->second.get();
}

void ProgramTimers::Delete(timer_t id) { signalling_.erase(id); }

std::optional<Time> ProgramTimers::NextDeadline() const {
  Earliest next;
  next.Note(alarm_->setting.due);
  for (const auto& [key, timer] : descriptors_) next.Note(timer->setting.due);
  for (const auto& [key, timer] : signalling_) next.Note(timer->setting.due);
  return next.deadline();
}

void ProgramTimers::Expire(Time now) {
  Expire(*alarm_, now);
  for (auto& [id, timer] : signalling_) Expire(*timer, now);
  std::erase_if(descriptors_, [&](auto& each) { return !Expire(*each.second, now); });
}

bool ProgramTimers::Expire(ProgramTimer& timer, Time now) {
  TimerSetting& setting = timer.setting;
  if (!setting.due || *setting.due > now) return true;
  uint64_t times = 1;
  if (setting.interval > Duration::zero()) {
    times += static_cast<uint64_t>((now - *setting.due) / setting.interval);
    *setting.due += setting.interval * static_cast<int64_t>(times);
  } else {
    setting.due.reset();
  }
  return timer.Expire(times);
}

bool ProgramTimers::TakeSignalled() { return std::exchange(g_signalled, false); }

void ProgramTimers::Set(ProgramTimer& timer, const TimerSetting& setting, Time now) {
  timer.ForgetExpirations();
  timer.overrun = 0;
  timer.setting = setting;
  Expire(now);
}

void ProgramTimers::ForgetInChild() {
  descriptors_.clear();
  signalling_.clear();
  alarm_->setting = {};
}

void ProgramTimers::Disarm() {
  for (auto& [id, timer] : descriptors_) timer->setting.due.reset();
  for (auto& [id, timer] : signalling_) timer->setting.due.reset();
  alarm_->setting.due.reset();
}

}  // namespace rdmaemu::embedded
