// The number of runnable threads of the machine.
#pragma once

#include <cstdint>
#include <string_view>

#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::runtime {

// Returns the number of runnable threads in the text of /proc/loadavg (proc(5)): 1 in
// "0.42 1.58 2.39 1/190 7642". Returns 0 for another text.
uint32_t ParseRunnable(std::string_view loadavg);

class RunnableThreads {
 public:
  RunnableThreads();

  // Returns how many threads run or wait for a processor. The calling thread is one of them.
  // Returns 0 if /proc/loadavg cannot be read.
  uint32_t Count() const;
  // Returns the number of processors that were online when this object was created.
  uint32_t processors() const { return processors_; }

 private:
  UniqueFd file_;
  uint32_t processors_;
};

}  // namespace rdmaemu::runtime
