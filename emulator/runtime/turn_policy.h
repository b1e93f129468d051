// Decides when a host ends its turn, so that threads that wait for the turn run again
// (abi/host_turn.h). The host ends a turn when it has no more work. A thread then finds everything
// that the host did for it, and posts its next requests together.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "emulator/base/time.h"
#include "emulator/host/group_waits.h"

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

  // While programs copy for the host, a thread without a copy waits for this long. The host then
  // delivers several messages in one turn, and no copying thread waits meanwhile for a host that
  // waits for its processor.
  static constexpr Duration kAwaitCopies = std::chrono::microseconds(40);

  // The copies that the host awaits. kCopies: copies between its own programs. kForms: copies to
  // other hosts. The host sleeps while it awaits these.
  enum class Awaits : uint8_t { kNothing, kCopies, kForms };

  // Returns which waits to end after a scan, while a thread waits. `is_here`: a thread on the
  // host's processor waits (HostTurn::kAwaitedHere).
  std::optional<TurnEnd> Next(bool found_work, Awaits awaits, Time now, bool is_here = true) {
    if (!is_awaited_) began_ = now;
    is_awaited_ = true;
    if (found_work) idle_since_ = now;
    if (!MayGoOn(found_work, awaits, now, is_here)) {
      is_awaited_ = false;
      return TurnEnd::kAll;
    }
    if (found_work) return std::nullopt;
    return awaits == Awaits::kCopies ? TurnEnd::kWithOffers : TurnEnd::kWithNews;
  }
  // Call this after a scan when no thread waits.
  void NotAwaited(bool found_work, Time now) {
    is_awaited_ = false;
    if (found_work) idle_since_ = now;
  }

 private:
  bool MayGoOn(bool found_work, Awaits awaits, Time now, bool is_here) const {
    if (found_work) return now - began_ < kLongest;
    switch (awaits) {
      case Awaits::kForms:
        return false;
      case Awaits::kCopies:
        return now - began_ < kAwaitCopies;
      case Awaits::kNothing:
        break;
    }
    return is_here ? now - idle_since_ < kAwaitNews : now - began_ < kLongest;
  }

  bool is_awaited_ = false;
  Time began_{};       // of the wait
  Time idle_since_{};  // the last scan that found work
};

}  // namespace rdmaemu::runtime
