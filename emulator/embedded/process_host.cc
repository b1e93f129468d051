#include "emulator/embedded/process_host.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/single_threaded.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <utility>

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

using EmbedFunction = int (*)(const rdmaemu_embedded_host*);

// Of the libibverbs.so.1 that this process uses; nullptr when it is another one.
EmbedFunction FindEmbed() {
  return reinterpret_cast<EmbedFunction>(dlsym(RTLD_DEFAULT, "rdmaemu_client_embed"));
}

}  // namespace

class ProcessHost::Sleeper {
 public:
  ~Sleeper() {
    ProcessHost& home = Get();
    const std::lock_guard lock(home.mutex_);
    std::erase(home.sleepers_, this);
  }
  // Under the lock, before the sleep.
  bool Prepare() {
    if (!wake_) wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake_) return false;
    uint64_t earlier;
    [[maybe_unused]] const ssize_t got = read(wake_.get(), &earlier, sizeof earlier);
    std::vector<Sleeper*>& all = Get().sleepers_;
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
};

const rdmaemu_embedded_host ProcessHost::kFunctions = {Call, Ring, Wait, Idle};

ProcessHost& ProcessHost::Get() {
  static auto* const host = new ProcessHost;
  return *host;
}

tl::expected<void, ProcessHost::Refusal> ProcessHost::Open(const EmbeddedOptions& options) {
  const EmbedFunction embed = FindEmbed();
  if (embed == nullptr) {
    return tl::unexpected(Refusal{
        ENOTSUP,
        "this process does not use rdmaemu's libibverbs.so.1, which gives it the host's devices; "
        "link with the flags of `pkg-config --libs rdmaemu`, or put the directory of rdmaemu's "
        "libraries into LD_LIBRARY_PATH"});
  }
  auto made = EmbeddedHost::Open(options);
  if (!made) return tl::unexpected(Refusal{EINVAL, std::move(made.error())});
  {
    const std::lock_guard lock(mutex_);
    if (host_ != nullptr) {
      return tl::unexpected(Refusal{
          EBUSY, "this process has a host already; close it first, or give it more devices"});
    }
    host_ = std::move(*made);
  }
  const int error = embed(&kFunctions);
  if (error == 0) return {};
  const std::lock_guard lock(mutex_);
  host_.reset();
  return tl::unexpected(Refusal{
      error, error == EBUSY ? "this process is a client of a host process already; open the host "
                              "before the first use of libibverbs or librdmacm"
                            : std::string("the host did not start: ") + std::strerror(error)});
}

bool ProcessHost::Close() {
  std::unique_ptr<EmbeddedHost> ended;
  {
    const std::lock_guard lock(mutex_);
    if (host_ == nullptr) return false;
    ended = std::move(host_);
    WakeWaiters();
  }
  if (const EmbedFunction embed = FindEmbed()) embed(nullptr);
  return true;
}

void ProcessHost::WakeWaiters() {
  for (const Sleeper* sleeper : sleepers_) sleeper->Wake();
  sleepers_.clear();
}

int ProcessHost::Call(uint32_t op, const void* in, uint32_t in_size, void* out, uint32_t out_size,
                      uint32_t* out_filled, int* descriptors, uint32_t descriptor_count) {
  CallBuffers call{op, in, in_size, out, out_size, 0, descriptors, descriptor_count};
  const int error = Get().With([&](EmbeddedHost& host) { return host.Call(call); });
  if (out_filled != nullptr) *out_filled = call.filled;
  return error == ENOENT && !Get().IsOpen() ? EIO : error;
}

void ProcessHost::Ring() {
  Get().With([](EmbeddedHost& host) {
    host.Ring();
    return 0;
  });
}

void ProcessHost::Idle() {
  ProcessHost& home = Get();
  const std::lock_guard lock(home.mutex_);
  if (home.host_ != nullptr) home.host_->Look(IsAlone());
}

int ProcessHost::Wait(int counter_fd) { return Get().WaitFor(counter_fd); }

// A cancellation point where it sleeps, as the read(2) that it stands for: nothing is held there.
int ProcessHost::WaitFor(int counter_fd) {
  thread_local Sleeper sleeper;
  for (bool looked = false;;) {
    EmbeddedHost::Pause pause;
    {
      const std::lock_guard lock(mutex_);
      if (host_ == nullptr) return EIO;
      host_->Settle();
      const int taken = TakeOne(counter_fd);
      if (taken != EAGAIN) return taken;
      if (IsNonBlocking(counter_fd)) {
        if (std::exchange(looked, true)) return EAGAIN;
        host_->Look(IsAlone());
        continue;
      }
      pause = host_->GoOn(IsAlone());
      if (pause.moved) continue;
      if (pause.endless) return EDEADLK;
      if (!sleeper.Prepare()) return EMFILE;
    }
    if (const int error = sleeper.Sleep(counter_fd, pause.machine); error != 0) return error;
  }
}

}  // namespace rdmaemu::embedded
