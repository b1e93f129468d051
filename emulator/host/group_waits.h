// How the threads of programs have waited and worked for their host, and which of them wait no
// more.
#pragma once

#include <cstdint>

#include "emulator/base/ids.h"

namespace rdmaemu {

// The waits of one group (abi/program_place.h). The group's processes write the numbers, which may
// be anything.
struct GroupWaits {
  GroupId group;
  uint32_t processor;  // counted from 1; 0: unknown
  uint32_t calls, vain_polls, copies;
};

// The groups whose threads no longer wait for the host's turn: those with copies to make
// (abi/copy_jobs.h), those with new completions, or all.
enum class TurnEnd : uint8_t { kWithOffers, kWithNews, kAll };

}  // namespace rdmaemu
