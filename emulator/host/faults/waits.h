// Who waits until a rule has fired so often (`rdmaemu fault wait`).
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
  // Of all processes together; a process has one connection, and waits for one answer at a time.
  static constexpr size_t kMaxWaits = 4096;

  struct Ended {
    ProcessId process;
    std::string rule;
  };

  // False: too many wait.
  bool Add(ProcessId process, std::string_view rule, uint64_t times);
  // The rule has fired so often.
  void Fired(std::string_view rule, uint64_t times);
  // The rule has gone, or (nothing) all have: nobody waits in vain.
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
  // In the order in which they came.
  template <class Ends>
  void End(const Ends& ends);

  std::vector<Waiting> waiting_;
  std::deque<Ended> ended_;
};

}  // namespace rdmaemu
