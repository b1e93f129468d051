// Posts and polls whose callers a rule delays after they have taken effect. The program executes
// them itself (calls.h, AskIn). So the host returns a number, and the program waits with a second
// call that contains the number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "emulator/base/ids.h"

namespace rdmaemu {

class AskedCalls {
 public:
  // Delayed calls of a host. Further calls are not delayed.
  static constexpr size_t kMaxAsked = 4096;
  bool HasRoom() const { return asked_.size() < kMaxAsked; }

  // Registers a call that is delayed. Returns its number, never 0.
  uint32_t Begin(ProcessId process);
  // Ends the call's delay. Returns true when the program is already waiting and must get its reply
  // now.
  bool End(uint32_t number);
  // Registers that the program waits. True: the program must wait for End. False: there is nothing
  // left to wait for.
  bool Come(ProcessId process, uint32_t number);
  void Forget(ProcessId process);

 private:
  struct Asked {
    ProcessId process;
    bool has_come = false, is_over = false;
  };
  std::map<uint32_t, Asked> asked_;
  uint32_t last_number_ = 0;
};

}  // namespace rdmaemu
