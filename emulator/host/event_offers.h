// Offers events of connection management to programs (abi/process_page.h), so that
// rdma_get_cm_event(3) needs no call. The host remembers the sequence by which a process has
// fetched its last event, and executes the sequence for the next events in advance. An event stays
// queued until the program has taken the offer and the host has seen this.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "emulator/abi/process_page.h"
#include "emulator/base/ids.h"
#include "emulator/cm/cm.h"
#include "emulator/host/cm_calls.h"
#include "emulator/host/processes.h"

namespace rdmaemu {

class HostEventOffers final : public cm::EventOffers {
 public:
  // The processes that have offers at a time. Limits what an entry into the host costs while many
  // programs leave offers untaken.
  static constexpr size_t kMaxProcesses = 16;

  // Keeps references. `may_offer` returns false when something must see each call.
  HostEventOffers(cm::Cm& cm, CmCalls& calls, const Processes& processes,
                  std::function<bool()> may_offer)
      : cm_(cm), calls_(calls), processes_(processes), may_offer_(std::move(may_offer)) {}

  // Remembers how the process fetches events, if `body` (hostile) is such a sequence for a channel
  // of the process's group. A process has offers for the channel of its last sequence.
  void Remember(ProcessId process, std::span<const std::byte> body);
  // Handles the offers that programs have taken. Call this at each entry into the host, before
  // anything that depends on which events were fetched.
  void Settle() {
    if (!made_.empty()) SettleMade();
  }
  // Withdraws all offers. Call this before calls must be seen, and before devices change.
  void WithdrawAll();
  // Call this before the process's page is freed.
  void Forget(ProcessId process);

  void Offer(uint32_t channel) override;
  size_t Offered(uint32_t channel) const override;
  void Withdraw(uint32_t channel, size_t from_place) override;
  void BeforeFetch(uint32_t channel) override;

 private:
  struct Fetch {
    uint32_t channel = 0;
    std::vector<std::byte> body = {};  // of the sequence
  };
  // The offers of a process: its range as the host has last written or settled it, never empty.
  struct Made {
    ProcessId process;
    uint32_t channel;
    OfferedRange range;
  };

  void SettleMade();
  // Replaces the range of these offers by `next(range)`, and reports what the program has fetched.
  // `next` gets the range without the fetched events, and returns a part of it.
  template <class Next>
  void Replace(Made& made, const Next& next);
  // Returns how many of the offered events the program has fetched, by the range in its page
  // (hostile).
  static size_t Fetched(const Made& made, const OfferedRange& in_page);
  // Reports the first `count` of the offers.
  void Report(Made& made, size_t count);
  void RemoveEmpty();
  Made* Find(uint32_t channel);
  // Returns whether the process may get one more offer, of this channel.
  bool HasRoomForOne(ProcessId process, uint32_t channel);
  // Offers the event of this reply behind the other offers.
  void Add(ProcessId process, const Fetch& fetch, const Reply& reply);
  OfferedEvents& PageOf(ProcessId process) { return processes_.Find(process)->page->offers; }
  Reply FetchAhead(ProcessId process, const Fetch& fetch, const cm::PendingEvent& event);

  cm::Cm& cm_;
  CmCalls& calls_;
  const Processes& processes_;
  const std::function<bool()> may_offer_;
  std::map<ProcessId, Fetch> fetches_;
  std::map<uint32_t, ProcessId> by_channel_;  // the process whose Fetch has the channel
  std::vector<Made> made_;                    // at most kMaxProcesses
  uint32_t last_generation_ = 0;
};

}  // namespace rdmaemu
