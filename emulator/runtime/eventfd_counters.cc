#include "emulator/runtime/eventfd_counters.h"

#include <sys/eventfd.h>
#include <sys/uio.h>

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
  // A client that has filled its counter keeps a readable descriptor and loses nothing that it
  // could have counted.
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

}  // namespace rdmaemu::runtime
