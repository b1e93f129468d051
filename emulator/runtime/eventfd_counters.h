// Event counters as eventfds in semaphore mode. A client shares the descriptor's flags and may
// change O_NONBLOCK at any time. This class therefore does not rely on the flags.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "emulator/base/memory.h"
#include "emulator/runtime/eventfd_signal.h"
#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::runtime {

class EventfdCounters final : public EventCounters {
 public:
  static constexpr size_t kMaxCounters = 65536;

  Result<CounterId> Create() override;
  void Destroy(CounterId counter) override;
  void Add(CounterId counter, uint32_t count) override;
  uint32_t Remove(CounterId counter, uint32_t count) override;
  int Descriptor(CounterId counter) const override;
  // Makes all counters readable forever, because the host has ended. Blocked programs then return.
  void RaiseForGood();

 private:
  EventfdSignal& signal_ = EventfdSignal::OfProcess();
  std::unordered_map<uint32_t, UniqueFd> counters_;
  uint32_t last_id_ = 0;
};

}  // namespace rdmaemu::runtime
