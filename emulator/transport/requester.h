// The requester of RC: takes requests from the shared ring, gives them PSNs and sends them as far
// as the window, responder resources and fences allow (the split of the kernel's rxe_req.c).
#pragma once

#include "emulator/transport/completer.h"
#include "emulator/transport/core.h"

namespace rdmaemu::transport {

class Requester {
 public:
  Requester(Core& core, Completer& completer) : core_(core), completer_(completer) {}

  // Sends what may be sent, up to a turn's bound; true when it stopped at the bound.
  bool Turn(Time now, QpContext& context);

 private:
  enum class Step : uint8_t { kSent, kBlocked, kBusy, kFailed };

  Step SendSome(Time now, QpContext& context, SendWqe& request, uint32_t& budget);
  Step SendData(Time now, QpContext& context, SendWqe& request, uint32_t room, uint32_t& budget);
  Step SendRead(Time now, QpContext& context, SendWqe& request, uint32_t room);
  Step SendAtomic(Time now, QpContext& context, SendWqe& request);
  Step Dispatch(Time now, QpContext& context, SendWqe& request, uint32_t packets, size_t limit);
  bool RunLocal(Time now, QpContext& context, SendWqe& request);
  void Address(QpContext& context, wire::Operation operation);

  Core& core_;
  Completer& completer_;
  Train train_;  // used again for every train
};

// The request at the cursor, or the next of the ring; nullptr when there is none to send. In SQD
// no request is begun.
SendWqe* NextRequest(QpContext& context);
// PSNs for a request that has none yet.
void AssignPsns(QpContext& context, SendWqe& request);
// LOCAL_INV and BIND_MW.
ibv_wc_status ExecuteLocal(Core& core, QueuePair& qp, const SendWqe& request);
// What a SEND or WRITE is as a single packet.
wire::Operation DataOperation(ibv_wr_opcode opcode);
// Headers that the request's operation carries, and its payload from packet `request.sent` on.
ibv_wc_status LoadData(Core& core, QpContext& context, const SendWqe& request, uint32_t packets,
                       Train& train);

}  // namespace rdmaemu::transport
