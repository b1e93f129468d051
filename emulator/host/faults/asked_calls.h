// Posts and polls that a rule keeps waiting after they have taken effect. The program does them
// itself (calls.h, AskIn), so it is told a number, and comes back with it to wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "emulator/base/ids.h"

namespace rdmaemu {

class AskedCalls {
 public:
  // Of a host; for more there is no room, and they do not wait.
  static constexpr size_t kMaxAsked = 4096;
  bool HasRoom() const { return asked_.size() < kMaxAsked; }

  // A call begins to wait; its number, never 0.
  uint32_t Begin(ProcessId process);
  // Its wait is over. True: the program has come to wait, and is to be answered now.
  bool End(uint32_t number);
  // The program has come. True: it is to wait, and End will tell; false: nothing is left to wait
  // for.
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
