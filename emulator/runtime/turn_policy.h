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
  // The longest turn of a host that always has work.
  static constexpr Duration kLongest = std::chrono::microseconds(200);

  enum class Step { kGoOn, kEndWithNews, kEndAll };

  // Returns what to do after a scan, while a thread waits. kEndWithNews: end the turn for groups
  // that have new completions.
  Step Next(bool found_work, bool awaits_copies, Time now) {
    if (!is_awaited_) began_ = now;
    is_awaited_ = true;
    if (found_work) idle_since_ = now;
    const bool is_late =
        found_work ? now - began_ >= kLongest : awaits_copies || now - idle_since_ >= kAwaitNews;
    if (is_late) {
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
