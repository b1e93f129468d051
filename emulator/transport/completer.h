// The completer of RC. The completer handles responses, completes requests in order, retransmits
// lost packets, and fails requests that cannot succeed. Counterpart in the kernel: rxe_comp.c.
#pragma once

#include <optional>

#include "emulator/transport/core.h"

namespace rdmaemu::transport {

class Completer {
 public:
  explicit Completer(Core& core) : core_(core) {}

  // Handles an ACK, NAK, READ response or atomic acknowledge for the QP, which is in RTS or SQD.
  void Handle(Time now, QpContext& context, Train& train);
  // Handles several packets of a READ response whose payload is in Train::parts. Returns false when
  // they are not the next expected packets. The caller must then handle them one by one. In that
  // case only memory has changed that the packets will write again.
  bool HandleRun(Time now, QpContext& context, Train& train);
  // Resolves the destination of a READ response that is handled next, or directly after the parked
  // response `before`. Returns false when the destination is unknown.
  bool Target(QpContext& context, const Train& train, const ParkedTrain* before, Pieces& into);
  // Handles the expired ACK timeout or RNR timer.
  void Expire(Time now, QpContext& context);
  // Completes the oldest requests that have their responses or need none. The first failed request
  // moves the QP to ERR.
  void CompleteDone(Time now, QpContext& context);
  // Completes the oldest request.
  void Finish(Time now, QpContext& context);
  // Returns the incomplete request that contains the PSN. nullptr: there is none.
  static const SendWqe* RequestOf(const QpContext& context, uint32_t psn);
  // Fails the request that contains the PSN, after the requests before it have completed.
  void FailRequest(Time now, QpContext& context, uint32_t psn, ibv_wc_status status);
  // Completes all posted sends with WR_FLUSH_ERR, also unsignalled ones.
  void Flush(Time now, QpContext& context);
  // In SQD: raises SQ_DRAINED when no request is in progress.
  void CheckDrained(QpContext& context);

  // Completes the requests before `to`, because the peer's program has got them. Does nothing with
  // a PSN that was not sent, or while a request of the QP is completed.
  void AcknowledgeBefore(Time now, QpContext& context, uint32_t to);

 private:
  bool AwaitsLocalQueue(QpContext& context);
  void HandleAck(Time now, QpContext& context, uint32_t psn, uint8_t syndrome);
  void HandleRnr(Time now, QpContext& context, uint8_t timer);
  void EndUntold(Time now, QpContext& context);
  void HandleFatalNak(Time now, QpContext& context, uint32_t psn, uint8_t code);
  void HandleRead(Time now, QpContext& context, Train& train);
  // Returns IBV_WC_SUCCESS, or the status with which the request fails. Returns nothing when the
  // process of one side has ended. The response then counts as lost.
  std::optional<ibv_wc_status> PlaceRead(QpContext& context, const SendWqe& request, Train& train);
  void FinishRead(Time now, QpContext& context, const SendWqe& request, uint32_t packets);
  void HandleAtomic(Time now, QpContext& context, const Train& train);
  // Acknowledges all packets before `to`. Returns false when a READ or atomic among them has no
  // response, which means that the response was lost.
  bool Acknowledge(Time now, QpContext& context, uint32_t to);
  // Records that the peer received `count` more packets, up to unacked_psn.
  void Progress(Time now, QpContext& context, uint32_t count);
  void Retry(Time now, QpContext& context, bool timeout, const char* why);
  void Fail(Time now, QpContext& context, ibv_wc_status status);

  Core& core_;
};

// Returns true in the states in which a requester sends.
inline bool IsSending(const QueuePair& qp) {
  return qp.state() == IBV_QPS_RTS || qp.state() == IBV_QPS_SQD;
}
// Sets the next packet to `psn`. Packets sent from there on count as not sent (go-back-N).
void SeekTo(QpContext& context, uint32_t psn);
// Returns the deadline of the oldest unacknowledged packet, counted from `now`. Returns nothing
// when the QP's timeout is 0.
std::optional<Time> AckDeadline(Time now, const QueuePair& qp);

}  // namespace rdmaemu::transport
