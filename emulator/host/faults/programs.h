// The programs that are connected to a host, under the names that fault rules use.
#pragma once

#include <string_view>

#include "emulator/base/ids.h"

namespace rdmaemu {

class Programs {
 public:
  virtual ~Programs() = default;
  // Returns the program that began the group. Empty when the group has ended.
  virtual std::string_view ProgramOf(GroupId group) const = 0;
  // Returns the program of a process. Empty when no such process is connected.
  virtual std::string_view ProgramOf(ProcessId process) const = 0;
};

}  // namespace rdmaemu
