// Event counters as eventfds in semaphore mode. The descriptor's flags are shared with the client,
// which may make it blocking or not as it likes; so nothing here may rely on them.
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
  // What is sent to a client; -1 when there is none of that id.
  int Descriptor(CounterId counter) const;
  // The host has gone: nobody who waits for one of its counters waits any longer.
  void RaiseForGood();

 private:
  EventfdSignal& signal_ = EventfdSignal::OfProcess();
  std::unordered_map<uint32_t, UniqueFd> counters_;
  uint32_t last_id_ = 0;
};

}  // namespace rdmaemu::runtime
