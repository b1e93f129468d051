// The requester of RC. The requester takes requests from the shared ring, assigns PSNs, and sends
// as far as the window, responder resources and fences permit. Counterpart in the kernel:
// rxe_req.c.
#pragma once

#include "emulator/transport/completer.h"
#include "emulator/transport/core.h"
#include "emulator/transport/direct_sends.h"

namespace rdmaemu::transport {

class Requester {
 public:
  Requester(Core& core, Completer& completer)
      : core_(core), completer_(completer), direct_(core, completer) {}

  // Sends as many packets as possible, up to the limit of one turn. Returns true when it stopped at
  // that limit. Only notes requests that SendNoted can execute directly.
  bool Turn(Time now, QpContext& context) { return Turn(now, context, nullptr); }
  bool has_noted() const { return direct_.has_noted(); }
  uint64_t direct_sends() const { return direct_.executed(); }
  // Does the turns of the QPs that Turn has noted.
  void SendNoted(Time now);

 private:
  enum class Step : uint8_t { kSent, kBlocked, kBusy, kFailed };

  // `end`: executes SENDs directly, and takes no request from the ring at this index or behind it.
  bool Turn(Time now, QpContext& context, const uint32_t* end);
  Step SendSome(Time now, QpContext& context, SendWqe& request, uint32_t& budget);
  Step SendData(Time now, QpContext& context, SendWqe& request, uint32_t room, uint32_t& budget);
  Step SendRead(Time now, QpContext& context, SendWqe& request, uint32_t room);
  Step SendAtomic(Time now, QpContext& context, SendWqe& request);
  Step SendFlush(Time now, QpContext& context, SendWqe& request);
  Step SendAtomicWrite(Time now, QpContext& context, SendWqe& request);
  Step Dispatch(Time now, QpContext& context, SendWqe& request, uint32_t packets, size_t limit);
  bool RunLocal(Time now, QpContext& context, SendWqe& request);
  void Address(QpContext& context, wire::Operation operation);

  Core& core_;
  Completer& completer_;
  DirectSends direct_;
  std::unique_ptr<Train> train_ = std::make_unique<Train>();  // the next one
};

// Returns the request at the cursor, or else the next request of the ring. nullptr: there is no
// request to send. In SQD, returns only requests that have begun.
SendWqe* NextRequest(QpContext& context);
// Assigns PSNs to a request that has none yet.
void AssignPsns(QpContext& context, SendWqe& request);
// Executes LOCAL_INV or BIND_MW.
ibv_wc_status ExecuteLocal(Core& core, QueuePair& qp, const SendWqe& request);
// Returns the operation of a SEND or WRITE as a single packet.
wire::Operation DataOperation(ibv_wr_opcode opcode);
// Returns true if the library has copied the whole payload at post, from one SGE. The library
// copied it from the address of the SGE. The copy is valid only when the key maps to this address,
// which is not the case after ibv_reg_mr_iova.
bool HasValidCopy(Core& core, const QpContext& context, const SendWqe& request);
// Fills in the headers of the request's operation, and its payload from packet `request.sent` on.
ibv_wc_status LoadData(Core& core, QpContext& context, const SendWqe& request, uint32_t packets,
                       Train& train);

}  // namespace rdmaemu::transport
