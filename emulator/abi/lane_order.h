// The order of messages in several lanes (send_lane.h) whose completions go to one queue.
//
// A program may send a message, see its completion, and then send another one by another queue
// pair. The receiver must not get the second one first. So each message has the time before it was
// added. A reader first notes what all lanes have. Then it looks at all lanes again, and takes the
// messages up to the latest time that it noted: whatever was added before one of them is seen by
// the second look. The times are of one machine.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "emulator/abi/send_lane.h"

namespace rdmaemu {

// A reader's position in one lane.
struct LaneCursor {
  uint32_t next, end;  // numbers of messages
  uint64_t next_ns;    // of message `next`

  bool has_message() const { return next != end; }
};

class LaneOrder {
 public:
  // The first look. Call it for each lane. `number` is that of the opening.
  void Note(SendLane& lane, uint32_t number, LaneCursor& cursor) {
    See(lane, number, cursor);
    if (!cursor.has_message()) return;
    has_any_ = true;
    latest_ns_ = std::max({latest_ns_, cursor.next_ns, TimeOf(lane, cursor.end - 1)});
  }
  bool has_any() const { return has_any_; }
  // The second look, after the first one at all lanes.
  void LookAgain(SendLane& lane, uint32_t number, LaneCursor& cursor) const {
    See(lane, number, cursor);
  }
  // Returns true if the lane's next message may be taken.
  bool IsDue(const LaneCursor& cursor) const {
    return cursor.has_message() && cursor.next_ns <= latest_ns_;
  }
  uint64_t latest_ns() const { return latest_ns_; }

  // Moves behind the next message.
  static void Advance(SendLane& lane, LaneCursor& cursor) {
    cursor.next++;
    if (cursor.has_message()) cursor.next_ns = TimeOf(lane, cursor.next);
  }
  // Moves behind the messages that another process has taken meanwhile, at most to the end.
  static void SkipTaken(SendLane& lane, uint32_t number, LaneCursor& cursor) {
    const LaneWaiting waiting = lane.Waiting(number);
    const uint32_t taken = waiting.first - cursor.next;
    cursor.next += std::min(taken, cursor.end - cursor.next);
    if (cursor.has_message()) cursor.next_ns = TimeOf(lane, cursor.next);
  }

 private:
  static uint64_t TimeOf(SendLane& lane, uint32_t index) {
    return std::atomic_ref(lane.MessageAt(index).added_ns).load(std::memory_order_relaxed);
  }
  static void See(SendLane& lane, uint32_t number, LaneCursor& cursor) {
    const LaneWaiting waiting = lane.Waiting(number);
    cursor.next = waiting.first;
    cursor.end = waiting.first + waiting.count;
    if (waiting.count > 0) cursor.next_ns = TimeOf(lane, cursor.next);
  }

  uint64_t latest_ns_ = 0;
  bool has_any_ = false;
};

}  // namespace rdmaemu
