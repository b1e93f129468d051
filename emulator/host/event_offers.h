// Offers events of connection management to programs (abi/process_page.h), so that
// rdma_get_cm_event(3) needs no call. The host remembers the sequence by which a process has
// fetched its last event, and executes the sequence for the next event in advance. The event stays
// queued until the program has taken the offer.
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
  // Limits what an entry into the host costs while many programs leave offers untaken.
  static constexpr size_t kMaxOffers = 16;

  // Keeps references. `may_offer` returns false when something must see each call.
  HostEventOffers(cm::Cm& cm, CmCalls& calls, const Processes& processes,
                  std::function<bool()> may_offer)
      : cm_(cm), calls_(calls), processes_(processes), may_offer_(std::move(may_offer)) {}

  // Remembers how the process fetches events, if `body` (hostile) is such a sequence for a channel
  // of the process's group. The host has one offer for each process, for the channel of the last
  // sequence.
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
  void Withdraw(uint32_t channel) override;

 private:
  struct Fetch {
    uint32_t channel = 0;
    std::vector<std::byte> body = {};  // of the sequence
  };
  struct Made {
    ProcessId process;
    uint32_t channel;
    uint32_t word;  // EventOffer::word while the offer is neither taken nor withdrawn
  };

  void SettleMade();
  // These two end the offer at this index of made_.
  void WithdrawMade(size_t index);
  void Report(size_t index);
  bool HasOffer(ProcessId process) const;
  EventOffer& PageOf(ProcessId process) { return processes_.Find(process)->page->event; }
  Reply FetchAhead(const ConnectedProcess& process, const Maker& maker, const Fetch& fetch);

  cm::Cm& cm_;
  CmCalls& calls_;
  const Processes& processes_;
  const std::function<bool()> may_offer_;
  std::map<ProcessId, Fetch> fetches_;
  std::map<uint32_t, ProcessId> by_channel_;  // the process whose Fetch has the channel
  std::vector<Made> made_;                    // at most kMaxOffers, one for each process
  uint32_t last_number_ = 0;
};

}  // namespace rdmaemu
