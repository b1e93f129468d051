// The processes that wait until a rule has fired often enough (`rdmaemu fault wait`).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/base/ids.h"

namespace rdmaemu {

class FaultWaits {
 public:
  // Limit of the waits of all processes together. A process has one connection, and waits for one
  // reply at a time.
  static constexpr size_t kMaxWaits = 4096;

  struct Ended {
    ProcessId process;
    std::string rule;
  };

  // Adds a wait. Returns false when there are too many waits.
  bool Add(ProcessId process, std::string_view rule, uint64_t times);
  // Ends the waits that this number of firings satisfies.
  void Fired(std::string_view rule, uint64_t times);
  // Ends the waits for a removed rule, because it will not fire again. nullopt: ends the waits for
  // all rules.
  void Removed(std::optional<std::string_view> rule);
  void Forget(ProcessId process);

  bool empty() const { return waiting_.empty(); }
  bool any_ended() const { return !ended_.empty(); }
  std::optional<Ended> TakeEnded();

 private:
  struct Waiting {
    ProcessId process;
    std::string rule;
    uint64_t times;
  };
  // Ends waits in the order in which they were added.
  template <class Ends>
  void End(const Ends& ends);

  std::vector<Waiting> waiting_;
  std::deque<Ended> ended_;
};

}  // namespace rdmaemu
