// UC and UD, requester and responder. A request completes when it was sent. No packet is
// acknowledged. The receiver drops packets that it cannot accept. Between QPs of one host, the
// receiver runs within the send. The sender's buffer is therefore free at the completion.
#pragma once

#include "emulator/transport/completer.h"
#include "emulator/transport/core.h"

namespace rdmaemu::transport {

// Delivers a packet or train to its QP, with all checks of a packet from the wire.
class Receiver {
 public:
  virtual ~Receiver() = default;
  virtual void Deliver(Time now, Train& train) = 0;
};

class Unreliable {
 public:
  Unreliable(Core& core, Completer& completer, Receiver& receiver)
      : core_(core), completer_(completer), receiver_(receiver) {}

  // Sends posted work, up to the limit of one turn. Returns true when it stopped at that limit.
  bool Turn(Time now, QpContext& context);
  void HandleUc(Time now, QpContext& context, Train& train);
  void HandleUd(Time now, QpContext& context, Train& train);

 private:
  ibv_wc_status SendUc(Time now, QpContext& context, SendWqe& request);
  ibv_wc_status SendUd(Time now, QpContext& context, SendWqe& request);
  ibv_wc_status SendMulticast(Time now, QpContext& context);
  ibv_wc_status Hand(Time now, Device& from, bool local);
  bool PlaceUcSend(Time now, QpContext& context, Train& train);
  bool PlaceUcWrite(Time now, QpContext& context, Train& train);
  void FailReceive(Time now, QpContext& context, ibv_wc_status status);

  Core& core_;
  Completer& completer_;
  Receiver& receiver_;
  Train train_;
};

// Returns the first 40 bytes of a UD receive: an IPv6 header, or 20 zero bytes and an IPv4 header.
// rxe and real adapters do the same.
inline constexpr size_t kGrhBytes = 40;
// Returns true when the GRH bytes of a UD receive hold an IPv4 header.
bool HasIpv4Grh(const Train& train);
std::array<std::byte, kGrhBytes> MakeGrh(const Train& train);

}  // namespace rdmaemu::transport
