// UC and UD, both directions: a request completes when it has been sent, nothing is acknowledged,
// and what does not fit the receiver is dropped. Between QPs of one host the receiver is served
// within the send, so that the sender's buffer is free when it is told so.
#pragma once

#include "emulator/transport/completer.h"
#include "emulator/transport/core.h"

namespace rdmaemu::transport {

// Hands a packet or train to the QP it is for, with all checks of a packet from the wire.
class Receiver {
 public:
  virtual ~Receiver() = default;
  virtual void Deliver(Time now, Train& train) = 0;
};

class Unreliable {
 public:
  Unreliable(Core& core, Completer& completer, Receiver& receiver)
      : core_(core), completer_(completer), receiver_(receiver) {}

  // Sends what was posted, up to a turn's bound; true when it stopped at the bound.
  bool Turn(Time now, QpContext& context);
  void HandleUc(Time now, QpContext& context, Train& train);
  void HandleUd(Time now, QpContext& context, Train& train);

 private:
  ibv_wc_status SendUc(Time now, QpContext& context, SendWqe& request);
  ibv_wc_status SendUd(Time now, QpContext& context, SendWqe& request);
  ibv_wc_status SendMulticast(Time now, QpContext& context);
  ibv_wc_status Hand(Time now, bool local);
  bool PlaceUcSend(Time now, QpContext& context, Train& train);
  bool PlaceUcWrite(Time now, QpContext& context, Train& train);
  void FailReceive(Time now, QpContext& context, ibv_wc_status status);

  Core& core_;
  Completer& completer_;
  Receiver& receiver_;
  Train train_;
};

// What stands in the first 40 bytes of a UD receive: an IPv6 header, or 20 bytes of zero and an
// IPv4 header, as rxe and real adapters have it.
inline constexpr size_t kGrhBytes = 40;
std::array<std::byte, kGrhBytes> MakeGrh(const Train& train);

}  // namespace rdmaemu::transport
