// Packets and trains from the wire. Consecutive packets of one message are handled as one train,
// where the result is that of single packets.
#pragma once

#include <span>
#include <vector>

#include "emulator/transport/core.h"
#include "emulator/transport/dispatcher.h"
#include "emulator/transport/engine.h"
#include "emulator/transport/responder.h"
#include "emulator/transport/train.h"
#include "emulator/wire/packet.h"

namespace rdmaemu::transport {

class WireIn {
 public:
  WireIn(Core& core, Responder& responder, Dispatcher& dispatcher)
      : core_(core), responder_(responder), dispatcher_(dispatcher) {}

  // These act as those of Engine.
  void Receive(Time now, const wire::UdpFlow& flow, std::span<const wire::Packet> packets,
               const NetAddress* at);
  void ReceiveTrains(Time now, const Engine::NextTrain& next, bool are_placed);
  void ReceiveKept(Time now, const wire::UdpFlow& flow, const wire::Packet& packet);

 private:
  void ReceiveMulticast(Time now, const wire::UdpFlow& flow, std::span<const wire::Packet> packets,
                        const NetAddress* at);
  void ReceiveRuns(Time now, const wire::UdpFlow& flow, std::span<const wire::Packet> packets);
  bool ReceiveRun(Time now, const wire::UdpFlow& flow, std::span<const wire::Packet> packets);
  void DeliverOne(Time now, Train& train);
  void Load(const wire::UdpFlow& flow, const wire::Packet& first, const wire::Packet& last);
  void LoadOne(const wire::UdpFlow& flow, const wire::Packet& packet);

  Core& core_;
  Responder& responder_;
  Dispatcher& dispatcher_;
  Train train_;                                    // the packets that are handled now
  bool is_placed_ = false;                         // these packets have their payload elsewhere
  std::vector<std::span<const std::byte>> parts_;  // of train_
  std::vector<wire::Packet> packets_;              // of a train that ReceiveTrains handles
};

}  // namespace rdmaemu::transport
