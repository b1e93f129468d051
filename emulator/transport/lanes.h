// The host's side of lanes (emulator/abi/send_lane.h): programs exchange small SENDs of two QPs of
// this host in memory that they share. The rules of permits.h apply.
//
// The sender's program adds messages by its permit, which names the lane. The receiver's program
// takes them while its LaneOffer holds. PSNs and counters of both QPs follow later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "emulator/base/memory.h"
#include "emulator/transport/qp_context.h"
#include "emulator/transport/train.h"

namespace rdmaemu::transport {

class Core;

// The memory of one lane. It lasts as long as one of its two QPs uses it.
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
  // The most lanes of a host. Each one is a descriptor, and a mapping in two programs.
  static constexpr size_t kMaxLanes = 128;

  explicit Lanes(Core& core) : core_(core) {}

  // Opens the lane for SENDs like `request`, which was the last one in the queue and has completed.
  // Does nothing if they need a host.
  void Grant(Time now, QpContext& context, const SendWqe& request);
  // Closes the QP's lane before the host executes a posted request, and counts the messages.
  void Interrupt(Time now, QpContext& context) {
    if (context.sent_lane && context.sent_lane->is_open) CloseSent(now, context);
  }
  // Counts the messages of all QPs. Call this before someone reads a counter.
  void Settle();
  // Closes all lanes. Takes the messages that no program has taken.
  void EndAll();
  // The QP begins another life, or is destroyed. Call EndAll before.
  void Forget(QpContext& context);
  // Returns the lane by which the QP receives or sends. SegmentId::kNone: there is none.
  static SegmentId LaneOf(const QpContext& context, bool receives);

 private:
  // The most grants without a lane after those that no program used.
  static constexpr uint32_t kMostSkips = 1023;
  // The program opens a lane when it posts a receive. It may post many receives together, so this
  // many openings in a row may be in vain.
  static constexpr uint32_t kPatience = 64;

  bool MayGrant(const QpContext& context, const SendWqe& request) const;
  bool Skips(SentLane& sent) const;
  bool HasMemory(QpContext& context);
  uint32_t NextNumber();
  // Lets the QP's program take messages. Returns false if they need this host.
  bool Lend(QpContext& context, const std::shared_ptr<LaneMemory>& memory, uint32_t number);
  void CloseSent(Time now, QpContext& context);
  void CloseReceived(Time now, QpContext& context);
  void SettleSent(QpContext& context);
  void SettleReceived(QpContext& context);
  void CountTaken(QpContext& context, uint32_t taken);
  // Handles a message that no program has taken. Returns false if the QP has failed.
  bool Deliver(Time now, QpContext& context, LaneMessage& message);

  Core& core_;
  size_t lanes_ = 0;
  uint32_t last_number_ = 0;
  Time latest_{};  // when the host last looked at a lane
  std::vector<QpContext*> senders_, receivers_;  // those with an open lane
  Train train_;  // reused for each message
};

}  // namespace rdmaemu::transport
