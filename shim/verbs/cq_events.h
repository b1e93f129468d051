// Events of completion queues that threads of a program raise, and the arming of queues. While a
// lane is open for the queue, the arming is in the lane (emulator/abi/send_lane.h), so that the
// sender's program can raise the event.
#pragma once

#include <atomic>

#include "shim/verbs/objects.h"

namespace rdmaemu::shim {

// Raises the event of a completion that this program has put into the queue. The caller has
// disarmed the queue.
void RaiseEvent(CompletionQueue& cq);

// Makes the host take the messages of all lanes of the device, and move armings to the queues.
void CloseAllLanes(CompletionQueue& cq);

// Arms the queue, as ibv_req_notify_cq. `kind` is kCqArmedSolicited or kCqArmedAny. Any thread may
// call this, also between ibv_start_poll and ibv_end_poll.
void ArmQueue(CompletionQueue& cq, uint32_t kind);

// Waits for the threads that arm the queue now. Returns false if one of them does not end: a signal
// handler may never return to it.
bool AwaitArming(CompletionQueue& cq);
// Makes the armings that other threads have left to this one while it resized the queue. The caller
// holds the queue's locks.
void ArmLater(CompletionQueue& cq);

// The lane that may have the queue's arming. It stays mapped while this object lives.
class ArmedLane {
 public:
  explicit ArmedLane(CompletionQueue& cq) : users_(cq.lane_users) {
    users_.fetch_add(1, std::memory_order_seq_cst);
    lane_ = std::atomic_ref(cq.armed_lane).load(std::memory_order_seq_cst);
  }
  ~ArmedLane() { users_.fetch_sub(1, std::memory_order_release); }
  ArmedLane(const ArmedLane&) = delete;
  ArmedLane& operator=(const ArmedLane&) = delete;

  SendLane* lane() const { return lane_; }

 private:
  std::atomic_ref<uint32_t> users_;
  SendLane* lane_;
};

// The use of a channel by a thread that looks for an event, or takes one and counts it for its
// queue. No lock, because a signal handler may interrupt the thread and never return to it
// (siglongjmp(3)). Such a thread counts as a user for good.
class ChannelUse {
 public:
  explicit ChannelUse(Channel& channel) : users_(channel.users) { users_.fetch_add(1); }
  ~ChannelUse() { users_.fetch_sub(1); }
  ChannelUse(const ChannelUse&) = delete;
  ChannelUse& operator=(const ChannelUse&) = delete;

 private:
  std::atomic_ref<uint32_t> users_;
};
// Waits until each thread that uses the channel now has ended its use. After 0.1 s, in which each
// thread could run, those that are left count as gone, and nobody waits for them again.
void AwaitUsers(Channel& channel);

// Prepares a lane that was opened for the queue pair, before it gets room for messages.
// `takes_arming` is LaneOffer::takes_arming. Returns false if the lane must not be used now. The
// caller holds the lock of the receive CQ.
bool UseLaneEvents(QueuePair& qp, bool takes_arming);
// Moves the events of the queue pair's lane to the channel, before the lane is unmapped. The host
// has closed it. Returns false if another thread still uses the lane.
bool EndLaneEvents(QueuePair& qp);

// Returns true if a lane may have an event for the channel.
bool HasLaneEvent(Channel& channel);
// Takes an event from a lane. Returns nullptr if there is none. The caller uses the channel, and
// has taken a count from the channel's counter.
CompletionQueue* TakeLaneEvent(Channel& channel);

}  // namespace rdmaemu::shim
