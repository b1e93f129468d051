// How the threads of programs have waited and worked for their host.
#pragma once

#include <cstdint>

#include "emulator/base/ids.h"

namespace rdmaemu {

// The waits of one group (abi/program_place.h). The group's processes write the numbers, which may
// be anything.
struct GroupWaits {
  GroupId group;
  uint32_t processor;  // counted from 1; 0: unknown
  uint32_t calls, event_waits, vain_polls, copies;
};

}  // namespace rdmaemu
