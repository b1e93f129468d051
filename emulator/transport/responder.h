// The responder of RC. The responder checks requests, executes each once and in order, and
// responds. It stores READs and atomics, so that it can repeat their responses. Counterpart in the
// kernel: rxe_resp.c.
#pragma once

#include <optional>
#include <vector>

#include "emulator/transport/core.h"

namespace rdmaemu::transport {

// Returns true in the states in which a responder executes requests.
inline bool TakesRequests(ibv_qp_state state) {
  return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD ||
         state == IBV_QPS_SQE;
}

class Responder {
 public:
  explicit Responder(Core& core) : core_(core) {}

  // Handles a request for the QP, which is in RTR, RTS or SQD.
  void Handle(Time now, QpContext& context, Train& train);
  // Executes several packets of a SEND or WRITE whose payload is in Train::parts. Returns false
  // when it cannot execute all of them. The caller must then handle them one by one. In that case
  // only two things have changed: memory that the packets will write again, and a taken receive.
  bool HandleRun(Time now, QpContext& context, Train& train);
  // While collecting, a QP does not send acknowledgements. SendCollectedAcks sends the last one.
  void CollectAcks(bool collect) { collecting_acks_ = collect; }
  void SendCollectedAcks(Time now);
  // Resolves the destination of a train's payload. The train is handled next, or directly after the
  // parked train `before`. Takes the receive of a SEND that is handled next. Returns false when the
  // destination is unknown or may not be written. `behind` is set to the place of the next SEND.
  bool Target(QpContext& context, const Train& train, const ParkedTrain* before, Pieces& into,
              ReceiveCursor& behind);
  // Sends READ responses, up to the limit of one turn. Returns true when it stopped at that limit.
  bool Turn(Time now, QpContext& context);
  // Returns true if the request must wait for READ responses to a QP of this host, which read their
  // memory when they are delivered. A READ brings the bytes from before the requests behind it.
  bool AwaitsReads(QpContext& context, const Train& request) const;
  // Returns true when the peer may still read the memory of a READ response. ibv_dereg_mr and
  // LOCAL_INV do not wait for responses in transit. When this is false, FailRead sends a NAK
  // instead of the response.
  bool MayStillRead(const QpContext& context, const Train& train) const;
  void FailRead(Time now, QpContext& context, uint32_t psn);
  // Completes every receive with WR_FLUSH_ERR. Receives of an SRQ stay.
  void Flush(Time now, QpContext& context);

 private:
  // Sends the READ responses before this request, which read their memory now. Returns false if the
  // QP has failed, because a response could not be sent.
  bool SendReadsBefore(Time now, QpContext& context, const Train& request);
  bool InSequence(const QpContext& context, const Train& train) const;
  void Duplicate(Time now, QpContext& context, const Train& train);
  void HandleRead(Time now, QpContext& context, const Train& train);
  void HandleAtomic(Time now, QpContext& context, const Train& train);
  void HandleFlush(Time now, QpContext& context, const Train& train);
  void HandleAtomicWrite(Time now, QpContext& context, const Train& train);
  // Completes the only packet of a FLUSH or ATOMIC WRITE.
  void AnswerEmptyRead(Time now, QpContext& context, const Train& train);
  void HandleData(Time now, QpContext& context, Train& train);
  bool TakeReceive(Time now, QpContext& context, Train& train);
  bool IsRefusedAtFirst(const QpContext& context, const Train& train) const;
  bool TargetSend(QpContext& context, const Train& train, const ParkedTrain* before, Pieces& into,
                  ReceiveCursor& behind);
  bool TargetWrite(QpContext& context, const Train& train, const ParkedTrain* before, Pieces& into,
                   ReceiveCursor& behind);
  bool PlaceSend(Time now, QpContext& context, Train& train);
  bool PlaceWrite(Time now, QpContext& context, Train& train);
  Placement WriteToReceive(QpContext& context, Train& train);
  Placement WriteToRemote(QpContext& context, Train& train);
  void Accept(Time now, QpContext& context, const Train& train);
  void QueueRead(QpContext& context, const Train& train);
  ResponderResource& Remember(QpContext& context, const Train& train, uint32_t packets);
  ResponderResource* Recall(QpContext& context, uint32_t psn, ResponderResource::Kind kind);
  void Nak(Time now, QpContext& context, wire::NakCode code, uint32_t psn);
  void Fatal(Time now, QpContext& context, wire::NakCode code, uint32_t psn, ibv_wc_status status);
  // `event` is raised when no completion reports the error.
  void Fatal(Time now, QpContext& context, wire::NakCode code, uint32_t psn, ibv_wc_status status,
             std::optional<ibv_event_type> event);
  std::optional<ibv_event_type> EventOfRefusedWrite(const QpContext& context) const;
  void Answer(Time now, QpContext& context, const Response& response);
  // Acknowledges all packets up to `psn`.
  void Acknowledge(Time now, QpContext& context, uint32_t psn);
  // Appends a response behind READ responses. A response that finds no room is lost.
  void Enqueue(ResponderState& s, const Response& response);
  void SendCollectedAck(Time now, QpContext& context);
  void Emit(Time now, QpContext& context, const Response& response);
  // Sends at most `packets` of a READ response. Returns false when the local queue is full or the
  // READ failed.
  bool EmitRead(Time now, QpContext& context, Response& response, uint32_t packets);
  // Sends all waiting responses for which there is room.
  void SendResponses(Time now, QpContext& context);
  void Address(QpContext& context, wire::Operation operation, uint32_t psn);

  Core& core_;
  Train train_;  // reused for every response
  bool collecting_acks_ = false;
  std::vector<QpContext*> owing_acks_;
};

// Returns the rights that the placement of a FLUSH needs.
int FlushAccess(const wire::PacketHeaders& headers);
// Stores the destination of a WRITE at its first packet. Returns false when the length disagrees
// with the RETH.
bool TakeWriteLength(QpContext& context, const Train& train);
// Returns true when the packets of a SEND have correct sizes: First and Middle full, Last not
// empty, none above the path MTU (IBTA C9-92, C9-93).
bool SendLengthFits(const QpContext& context, const Train& train);

// Returns the status of a receive that is too small for a message of `bytes` bytes, or whose memory
// cannot be written.
ibv_wc_status ReceiveError(const QpContext& context, uint64_t bytes);
// Completes the context's receive and releases it. Returns false on a CQ overrun.
bool FinishReceive(Core& core, Time now, QpContext& context, const Train* train,
                   ibv_wc_status status, uint64_t bytes);

}  // namespace rdmaemu::transport
