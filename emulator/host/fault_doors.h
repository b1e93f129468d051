// All the doors of a host where fault rules stand, as one thing that time passes for.
#pragma once

#include <optional>

#include "emulator/host/faults_async.h"
#include "emulator/host/faults_calls.h"
#include "emulator/host/faults_cm.h"
#include "emulator/host/faults_completions.h"
#include "emulator/host/faults_links.h"
#include "emulator/host/faults_packets.h"

namespace rdmaemu {

// What the transports ask.
class EngineDoors final : public transport::Doors {
 public:
  EngineDoors(HostFaults& faults, CompletionFaults& completions, PacketFaults& packets)
      : Doors(faults.flags()), completions_(completions), packets_(packets) {}
  bool Complete(Time now, transport::PassingCompletion completion) override {
    return completions_.Complete(now, completion);
  }
  bool Passes(Time now, const transport::PassingPacket& packet,
              const transport::PacketBytes& bytes) override {
    return packets_.Passes(now, packet, bytes);
  }

 private:
  CompletionFaults& completions_;
  PacketFaults& packets_;
};

struct FaultDoors {
  LinkFaults links;
  CallFaults calls;
  CmFaults cm;
  CompletionFaults completions;
  AsyncFaults async;
  PacketFaults packets;

  // What barriers hold goes on with the next look at what is due (Expire).
  void LetGo(Time now, const fault::Release& release) {
    calls.LetGo(now, release);
    cm.LetGo(now, release);
    completions.LetGo(now, release);
    async.LetGo(now, release);
    packets.LetGo(now, release);
  }
  // After objects may have gone: what was held of them does not come back.
  void ForgetGone() {
    completions.ForgetGone();
    async.ForgetGone();
    packets.ForgetGone();
  }
  bool holds() const {
    return !calls.held().empty() || !cm.held().empty() || completions.holds() ||
           !async.held().empty() || !packets.held().empty();
  }
  void CountHeld(fault::HeldCounts& counts) const {
    calls.held().Count(counts);
    cm.held().Count(counts);
    completions.CountHeld(counts);
    async.held().Count(counts);
    packets.held().Count(counts);
  }

  void Expire(Time now) {
    calls.Expire(now);
    cm.Expire(now);
    completions.Expire(now);
    async.Expire(now);
    packets.Expire(now);
  }
  std::optional<Time> NextDeadline() const {
    std::optional<Time> next;
    for (const std::optional<Time>& each :
         {calls.NextDeadline(), cm.NextDeadline(), completions.NextDeadline(), async.NextDeadline(),
          packets.NextDeadline()}) {
      if (each && (!next || *each < *next)) next = each;
    }
    return next;
  }
};

}  // namespace rdmaemu
