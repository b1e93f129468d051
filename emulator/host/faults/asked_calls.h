// Posts and polls that a rule delays after they have taken effect. The program executes posts and
// polls itself (calls.h, AskIn). The host therefore returns a number. The program then waits by a
// second call that contains the number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "emulator/base/ids.h"

namespace rdmaemu {

class AskedCalls {
 public:
  // Limit of the delayed calls of a host. Further calls are not delayed.
  static constexpr size_t kMaxAsked = 4096;
  bool HasRoom() const { return asked_.size() < kMaxAsked; }

  // Registers a call that is delayed. Returns its number, never 0.
  uint32_t Begin(ProcessId process);
  // Ends the call's delay. Returns the caller that already waits, and must get its reply now.
  std::optional<uint32_t> End(uint32_t number);
  // Records that the caller (Host::Call) waits for the call with this number. Returns true when it
  // must wait for End, and false when the delay is over.
  bool Come(ProcessId process, uint32_t caller, uint32_t number);
  void Forget(ProcessId process);

 private:
  struct Asked {
    ProcessId process;
    std::optional<uint32_t> caller = {};  // that waits
    bool is_over = false;
  };
  std::map<uint32_t, Asked> asked_;
  uint32_t last_number_ = 0;
};

}  // namespace rdmaemu
