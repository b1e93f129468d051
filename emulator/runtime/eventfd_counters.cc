#include "emulator/runtime/eventfd_counters.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

namespace rdmaemu::runtime {

Result<CounterId> EventfdCounters::Create() {
  if (counters_.size() >= kMaxCounters) return Fail(EMFILE);
  UniqueFd fd(eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC));
  if (!fd) return Fail(EMFILE);
  const uint32_t id = ++last_id_;
  counters_.emplace(id, std::move(fd));
  return CounterId{id};
}

void EventfdCounters::Destroy(CounterId counter) {
  counters_.erase(static_cast<uint32_t>(counter));
}

void EventfdCounters::Add(CounterId counter, uint32_t count) {
  // If a client has filled its counter, the descriptor stays readable. The client loses only counts
  // that do not fit.
  if (const int fd = Descriptor(counter); fd >= 0) signal_.Add(fd, count);
}

uint32_t EventfdCounters::Remove(CounterId counter, uint32_t count) {
  const int fd = Descriptor(counter);
  if (fd < 0) return 0;
  uint32_t taken = 0;
  uint64_t value;
  iovec into{&value, sizeof value};
  while (taken < count && preadv2(fd, &into, 1, -1, RWF_NOWAIT) == sizeof value) taken++;
  return taken;
}

int EventfdCounters::Descriptor(CounterId counter) const {
  const auto it = counters_.find(static_cast<uint32_t>(counter));
  return it == counters_.end() ? -1 : it->second.get();
}

void EventfdCounters::RaiseForGood() {
  constexpr uint64_t kForGood = uint64_t{1} << 40;  // more than any client reads
  for (const auto& [id, fd] : counters_) {
    // A full counter is readable already.
    pollfd poll_fd{fd.get(), POLLOUT, 0};
    if (poll(&poll_fd, 1, 0) != 1) continue;
    [[maybe_unused]] const ssize_t put = write(fd.get(), &kForGood, sizeof kForGood);
  }
}

}  // namespace rdmaemu::runtime
