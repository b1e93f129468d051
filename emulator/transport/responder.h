// The responder of RC: requests are checked, executed once and in order, and answered; READs and
// atomics are remembered to be answered again (the split of the kernel's rxe_resp.c).
#pragma once

#include <optional>
#include <vector>

#include "emulator/transport/core.h"

namespace rdmaemu::transport {

class Responder {
 public:
  explicit Responder(Core& core) : core_(core) {}

  // A request for the QP, which is in RTR, RTS or SQD.
  void Handle(Time now, QpContext& context, Train& train);
  // Several packets of a SEND or WRITE whose payload is in Train::parts, when all of them can be
  // executed. False: they must come one by one; nothing has changed but memory, with the bytes that
  // they will write again, and that a receive was taken.
  bool HandleRun(Time now, QpContext& context, Train& train);
  // While collecting, a QP's acknowledgements wait for SendCollectedAcks, which sends the last.
  void CollectAcks(bool collect) { collecting_acks_ = collect; }
  void SendCollectedAcks(Time now);
  // Where the payload of a train goes that is about to be handled, or will be right after the train
  // before the PSN `after`. Takes the receive of a SEND. False when that is not known, or nothing
  // may be placed there.
  bool Target(QpContext& context, const Train& train, const uint32_t* after, Pieces& into);
  // Sends READ responses, up to a turn's bound; true when it stopped at the bound.
  bool Turn(Time now, QpContext& context);
  // Whether what a READ response of the QP names is still the peer's to read; ibv_dereg_mr and
  // LOCAL_INV do not wait for those that are on their way. FailRead answers in their stead.
  bool MayStillRead(const QpContext& context, const Train& train) const;
  void FailRead(Time now, QpContext& context, uint32_t psn);
  // Every receive completes with WR_FLUSH_ERR; those of an SRQ stay.
  void Flush(Time now, QpContext& context);

 private:
  bool InSequence(const QpContext& context, const Train& train) const;
  void Duplicate(Time now, QpContext& context, const Train& train);
  void HandleRead(Time now, QpContext& context, const Train& train);
  void HandleAtomic(Time now, QpContext& context, const Train& train);
  void HandleData(Time now, QpContext& context, Train& train);
  bool TakeReceive(Time now, QpContext& context, Train& train);
  bool PlaceSend(Time now, QpContext& context, Train& train);
  bool PlaceWrite(Time now, QpContext& context, Train& train);
  Placement WriteToReceive(QpContext& context, Train& train);
  Placement WriteToRemote(QpContext& context, Train& train);
  void Accept(Time now, QpContext& context, const Train& train);
  void QueueRead(QpContext& context, const Train& train);
  ResponderResource& Remember(QpContext& context, const Train& train, uint32_t packets);
  ResponderResource* Recall(QpContext& context, uint32_t psn, bool atomic);
  void Nak(Time now, QpContext& context, wire::NakCode code, uint32_t psn);
  void Fatal(Time now, QpContext& context, wire::NakCode code, uint32_t psn, ibv_wc_status status);
  // `event`: where no completion tells of the error.
  void Fatal(Time now, QpContext& context, wire::NakCode code, uint32_t psn, ibv_wc_status status,
             std::optional<ibv_event_type> event);
  std::optional<ibv_event_type> EventOfRefusedWrite(const QpContext& context) const;
  void Answer(Time now, QpContext& context, const Response& response);
  // Behind READ responses that are on their way; lost when there is no room.
  void Enqueue(ResponderState& s, const Response& response);
  void SendCollectedAck(Time now, QpContext& context);
  void Emit(Time now, QpContext& context, const Response& response);
  // Sends at most `packets` of a READ response; false: the local queue is full, or it failed.
  bool EmitRead(Time now, QpContext& context, Response& response, uint32_t packets);
  void Drain(Time now, QpContext& context);
  void Address(QpContext& context, wire::Operation operation, uint32_t psn);

  Core& core_;
  Train train_;  // used again for every answer
  bool collecting_acks_ = false;
  std::vector<QpContext*> owing_acks_;
};

// Notes where a WRITE goes, at its first packet. False: its bytes are not those that the RETH
// announced.
bool TakeWriteLength(QpContext& context, const Train& train);
// True when the packets of a SEND have the sizes that their places in the message ask for: First
// and Middle full, Last not empty, none above the path MTU (IBTA C9-92, C9-93).
bool SendLengthFits(const QpContext& context, const Train& train);
// The completion of the receive that the context holds, which it gives up. False: CQ overrun.
bool FinishReceive(Core& core, Time now, QpContext& context, const Train* train,
                   ibv_wc_status status, uint64_t bytes);

}  // namespace rdmaemu::transport
