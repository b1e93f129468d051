// All doors of a host, as one object with one Expire.
#pragma once

#include <optional>

#include "emulator/host/faults/async_events.h"
#include "emulator/host/faults/calls.h"
#include "emulator/host/faults/cm.h"
#include "emulator/host/faults/completions.h"
#include "emulator/host/faults/links.h"
#include "emulator/host/faults/packets.h"

namespace rdmaemu {

// The doors that the transports call.
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

  // Releases a barrier's held items. They continue at the next Expire.
  void Release(Time now, const fault::Release& release) {
    EachQueue(*this, [&](auto& queue) { queue.Release(now, release); });
  }
  // Drops pending items of destroyed objects. Call this after objects may have been destroyed.
  void ForgetGone() {
    completions.ForgetGone();
    async.ForgetGone();
    packets.ForgetGone();
  }
  bool holds() const {
    bool any = false;
    EachQueue(*this, [&](const auto& queue) { any |= queue.holds(); });
    return any;
  }
  void CountHeld(fault::HeldCounts& counts) const {
    EachQueue(*this, [&](const auto& queue) { queue.CountHeld(counts); });
  }

  void Expire(Time now) {
    calls.Expire(now);
    cm.Expire(now);
    completions.Expire(now);
    async.Expire(now);
    packets.Expire(now);
  }
  std::optional<Time> NextDeadline() const {
    Earliest next;
    next.Note(packets.overtaken().NextDeadline());
    EachQueue(*this, [&](const auto& queue) { next.Note(queue.NextDeadline()); });
    return next.deadline();
  }

 private:
  template <class Doors, class Use>
  static void EachQueue(Doors& doors, const Use& use) {
    use(doors.calls.deferred());
    use(doors.cm.deferred());
    use(doors.completions.deferred());
    use(doors.async.deferred());
    use(doors.packets.deferred());
  }
};

}  // namespace rdmaemu
