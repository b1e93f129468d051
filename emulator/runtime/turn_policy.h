// Decides when a host ends its turn, so that threads that wait for the turn run again
// (abi/host_turn.h). The host ends a turn when it has no more work. A thread then finds everything
// that the host did for it, and posts its next requests together.
#pragma once

#include <chrono>

#include "emulator/base/time.h"

namespace rdmaemu::runtime {

class TurnPolicy {
 public:
  // A host without news for the threads waits this long for news. Most answers of another host or
  // program need less time, and each turn costs two switches between processes.
  static constexpr Duration kAwaitNews = std::chrono::microseconds(5);
  // The longest turn of a host that always has work, and of one that only threads on other
  // processors wait for. Such a thread takes no time from the host, and each wake-up of the thread
  // may take time from another host.
  static constexpr Duration kLongest = std::chrono::microseconds(200);

  enum class Step { kGoOn, kEndWithNews, kEndAll };

  // Returns what to do after a scan, while a thread waits. kEndWithNews: end the turn for groups
  // that have new completions. `is_here`: a thread on the host's processor waits
  // (HostTurn::kAwaitedHere).
  Step Next(bool found_work, bool awaits_copies, Time now, bool is_here = true) {
    if (!is_awaited_) began_ = now;
    is_awaited_ = true;
    if (found_work) idle_since_ = now;
    const bool may_go_on =
        found_work || !is_here ? now - began_ < kLongest : now - idle_since_ < kAwaitNews;
    if (!may_go_on || (!found_work && awaits_copies)) {
      is_awaited_ = false;
      return Step::kEndAll;
    }
    return found_work ? Step::kGoOn : Step::kEndWithNews;
  }
  // Call this after a scan when no thread waits.
  void NotAwaited(bool found_work, Time now) {
    is_awaited_ = false;
    if (found_work) idle_since_ = now;
  }

 private:
  bool is_awaited_ = false;
  Time began_{};       // of the wait
  Time idle_since_{};  // the last scan that found work
};

}  // namespace rdmaemu::runtime
