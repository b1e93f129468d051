// The host's side of lanes (emulator/abi/send_lane.h): programs exchange small SENDs in memory that
// they share. Their QPs are of this host, or of two hosts of one user. The rules of permits.h apply
// to each host.
//
// The sender's host makes the memory. The receiver's host opens the lane, while its QP has answered
// all requests, and tells its program (LaneOffer). The sender's host then tells its own program by
// a permit. Between two hosts, the sender's host offers the memory once. The receiver's host opens
// the lane again after each SEND that it has executed. PSNs and counters of both QPs follow later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "emulator/base/memory.h"
#include "emulator/transport/engine.h"
#include "emulator/transport/executions.h"
#include "emulator/transport/permit_offer.h"
#include "emulator/transport/qp_context.h"
#include "emulator/transport/train.h"

namespace rdmaemu::transport {

class Core;

// The memory of one lane. It lasts as long as one of its QPs uses it.
class LaneMemory {
 public:
  LaneMemory(SharedMemory& memory, const Segment& segment) : memory_(memory), segment_(segment) {}
  ~LaneMemory() { memory_.DestroySegment(segment_.id); }
  LaneMemory(const LaneMemory&) = delete;
  LaneMemory& operator=(const LaneMemory&) = delete;

  SendLane& lane() const { return *reinterpret_cast<SendLane*>(segment_.bytes.data()); }
  SegmentId segment() const { return segment_.id; }

 private:
  SharedMemory& memory_;
  Segment segment_;
};

class Lanes {
 public:
  // The most QPs of a host that have sent or received by a lane in their present lives. Each lane
  // is a descriptor, and a mapping in two programs.
  static constexpr size_t kMaxLanes = 128;
  // The most open lanes of a CQ. The host looks at all of them before it adds a completion.
  static constexpr size_t kMostLanesOfCq = 32;

  explicit Lanes(Core& core) : core_(core) {}

  // Completes a QP's requests before a PSN, as an acknowledgement does.
  using Acknowledge = std::function<void(Time, QpContext&, uint32_t before_psn)>;
  void OnAcknowledged(Acknowledge acknowledge) { on_acknowledged_ = std::move(acknowledge); }

  // Opens a lane for SENDs like `request` at a peer of this host. Call this before the completions
  // of `request`, which is the only one in the queue. The peer's program then knows of the lane
  // when it sees the message, and posts its next receives for the lane.
  void Prepare(Time now, QpContext& context, const SendWqe& request);
  // Lets the QP's program use a lane for SENDs like `request`, which was the last one in the queue
  // and has completed. Does nothing if they need a host.
  void Grant(Time now, QpContext& context, const SendWqe& request);
  // Closes the QP's lane before the host executes a posted request, and counts the messages.
  void Interrupt(Time now, QpContext& context) {
    if (context.sent_lane && context.sent_lane->is_open) CloseSent(now, context);
  }
  // Opens a lane that the peer's host has made.
  void TakeOffer(Time now, QpContext& context, const wire::UdpFlow& flow, const PermitOffer& offer,
                 const Engine::OpenLane& open_lane);
  // Closes the QP's lane before a request of its peer is handled, and takes the messages in it. If
  // lanes do not take such requests, also closes the lane by which the QP sends. The program's
  // answer then follows the acknowledgement, as the peer expects.
  void RequestArrives(QpContext& context, const Train& request);
  // Opens the QP's lane again after this host has executed a SEND of another host. Call this before
  // the program sees the message, and before the acknowledgement.
  //
  // Of SENDs that have arrived together, only the first one opens the lane, for a program that
  // awaits it. The next one closes the lane, and EndArrivals opens it again.
  void Executed(Time now, QpContext& context, const Train& send) {
    if (!context.received_lane || !context.received_lane->is_from_elsewhere) return;
    context.received_lane->is_due = MayBeInALane(send);
    if (!context.responder.collected_ack) OpenIfDue(now, context);
  }
  // Call this after requests that have arrived together, before their acknowledgement.
  void EndArrivals(Time now, QpContext& context) {
    if (context.received_lane) OpenIfDue(now, context);
  }
  // Call this when the QP has executed a SEND, before its program sees the completion. What the
  // program then sends by a lane acknowledges that SEND.
  void ShowExecuted(const QpContext& context) {
    if (context.sent_lane && context.sent_lane->memory) {
      context.sent_lane->memory->lane().SetAcknowledged(context.responder.expected_psn);
    }
  }
  // Call this when the QP's program can see the completions of all requests before the send ring's
  // consumer index.
  static void ShowCompleted(QpContext& context) {
    std::atomic_ref(context.qp->control->completed)
        .store(context.requester.consumer, std::memory_order_release);
    context.received_lane->memory->lane().SetCompleted(context.requester.unacked_psn);
  }
  static bool IsReceiving(const QpContext& context) {
    return context.received_lane && context.received_lane->is_open;
  }
  // Call this before the queue gets a completion. Takes the messages in its lanes, and closes the
  // lanes that leave no room for a completion. Closes a single lane that has messages.
  void TakeFrom(CompletionQueue& cq);
  // Counts the messages of all QPs. Call this before someone reads a counter.
  void Settle();
  // Closes all lanes. Takes the messages that no program has taken.
  void EndAll();
  // The QP begins another life, or is destroyed. Call EndAll before.
  void Forget(QpContext& context);
  // Act as those of TransportHooks.
  LaneCounter CounterOf(const QpContext& context) const;
  void RaiseEvent(const QpContext& context);
  void CloseEverywhere(Time now, QpContext& context);
  // Returns the lane by which the QP receives or sends. SegmentId::kNone: there is none.
  static SegmentId LaneOf(const QpContext& context, bool receives);

 private:
  // A host offers a lane again after so many grants without a lane that the other host has opened.
  static constexpr uint32_t kGrantsBetweenOffers = 256;

  bool MayUse() const;
  // `unfinished`: how many requests must be in the QP's queue.
  bool MayGrant(const QpContext& context, const SendWqe& request, size_t unfinished) const;
  // Returns the QP's lane, for another opening.
  static SentLane& Renewed(QpContext& context);
  std::shared_ptr<LaneMemory> Make(const Segment& segment);
  bool HasMemory(SentLane& sent);
  // Return false if the sender must not use the peer's lane now.
  bool IsOpenHere(const QpContext& context) const;
  bool IsOpenElsewhere(QpContext& context);
  void Offer(QpContext& context);
  // Returns true if the QP and its program can take messages by a lane.
  bool MayLend(const QpContext& context) const;
  // Lets the QP's program take messages. Returns false if they need this host.
  bool Lend(QpContext& context, const std::shared_ptr<LaneMemory>& memory);
  static bool MayBeInALane(const Train& request) {
    return request.info().send && request.begins && request.ends &&
           request.length() <= kMaxLaneBytes;
  }
  void OpenIfDue(Time now, QpContext& context);
  void CloseSent(Time now, QpContext& context);
  void CloseReceived(Time now, QpContext& context);
  void CloseIfReceiving(Time now, QpContext& context) {
    if (IsReceiving(context)) CloseReceived(now, context);
  }
  void SettleSent(QpContext& context);
  void SettleReceived(QpContext& context);
  void CountTaken(QpContext& context, uint32_t taken);
  CompletionChannel* LocalChannelOf(const QpContext& context) const;
  static bool IsAnswer(QpContext& context, SendLane& lane);
  // Completes the requests that a message acknowledges.
  void AcknowledgedBy(Time now, QpContext& context, LaneMessage& message);
  // Handles a message that no program has taken. Returns false if the QP has failed.
  bool Deliver(Time now, QpContext& context, LaneMessage& message);
  // Delivers the messages that are in the lanes of the queue now, in the order in which they were
  // added.
  void MoveMessages(Time now, CompletionQueue& cq);
  // Returns the QP whose lane has the next message, or nullptr.
  QpContext* NextOf(const CompletionQueue& cq, const LaneOrder& order);
  void MoveOne(Time now, QpContext& context);
  // Closes the lanes that had to close while one of their messages was delivered.
  void CloseDue(Time now, CompletionQueue& cq);
  // Finds the position in the receive ring, behind what the program has taken.
  void AwaitPlaced(QpContext& context, uint32_t before);

  Core& core_;
  Acknowledge on_acknowledged_;
  std::shared_ptr<void> live_ = std::make_shared<char>();  // each LaneMemory holds it
  uint32_t last_number_ = 0;                               // of the openings by this host
  Time latest_{};                                          // when the host last looked at a lane
  std::vector<QpContext*> senders_, receivers_;            // those with an open lane
  Train train_;                                            // reused for each message
};

}  // namespace rdmaemu::transport
