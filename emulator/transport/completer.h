// The completer of RC: answers come in, requests complete in order, what was lost is sent again,
// what cannot succeed fails with its status (the split of the kernel's rxe_comp.c).
#pragma once

#include <optional>

#include "emulator/transport/core.h"

namespace rdmaemu::transport {

class Completer {
 public:
  explicit Completer(Core& core) : core_(core) {}

  // An ACK, NAK, READ response or atomic acknowledge for the QP, which is in RTS or SQD.
  void Handle(Time now, QpContext& context, Train& train);
  // Several packets of a READ response whose payload is in Train::parts, when they are the next
  // that is waited for. False: they must come one by one; nothing has changed but memory, with the
  // bytes that they will write again.
  bool HandleRun(Time now, QpContext& context, Train& train);
  // Where the payload of a READ response goes that is about to be handled; false when that is not
  // known.
  bool Target(QpContext& context, const Train& train, Pieces& into);
  // The ACK timeout or the RNR timer has come.
  void Expire(Time now, QpContext& context);
  // Completes the requests at the front that wait for nothing; the first that failed takes the QP
  // into ERR.
  void CompleteDone(Time now, QpContext& context);
  // The request that holds the PSN and waits for its answer; nullptr: none does.
  static const SendWqe* RequestOf(const QpContext& context, uint32_t psn);
  // The request that holds the PSN fails when those before it have completed.
  void FailRequest(Time now, QpContext& context, uint32_t psn, ibv_wc_status status);
  // Everything posted completes with WR_FLUSH_ERR, unsignalled too.
  void Flush(Time now, QpContext& context);
  // In SQD: raises SQ_DRAINED once nothing is on its way.
  void CheckDrained(QpContext& context);

 private:
  void HandleAck(Time now, QpContext& context, uint32_t psn, uint8_t syndrome);
  void HandleRnr(Time now, QpContext& context, uint8_t timer);
  void EndUntold(Time now, QpContext& context);
  void HandleFatalNak(Time now, QpContext& context, uint32_t psn, uint8_t code);
  void HandleRead(Time now, QpContext& context, Train& train);
  // IBV_WC_SUCCESS, or what the request fails with.
  // Nothing: the process of one side has ended, and the response counts as lost.
  std::optional<ibv_wc_status> PlaceRead(QpContext& context, const SendWqe& request, Train& train);
  void FinishRead(Time now, QpContext& context, const SendWqe& request, uint32_t packets);
  void HandleAtomic(Time now, QpContext& context, const Train& train);
  // All before `to` has arrived at the peer. False when a READ or atomic among it was not
  // answered: its answer is lost.
  bool Acknowledge(Time now, QpContext& context, uint32_t to);
  // `count` more packets have arrived, up to unacked_psn.
  void Progress(Time now, QpContext& context, uint32_t count);
  void Retry(Time now, QpContext& context, bool timeout, const char* why);
  void Finish(Time now, QpContext& context);
  void Fail(Time now, QpContext& context, ibv_wc_status status);

  Core& core_;
};

// True in the states in which a requester works.
inline bool IsSending(const QueuePair& qp) {
  return qp.state() == IBV_QPS_RTS || qp.state() == IBV_QPS_SQD;
}
// The next packet to go is `psn`: what was sent from there on counts as not sent (go-back-N).
void SeekTo(QpContext& context, uint32_t psn);
// When the oldest unacknowledged packet is given up, counted from now; nothing with timeout 0.
std::optional<Time> AckDeadline(Time now, const QueuePair& qp);

}  // namespace rdmaemu::transport
