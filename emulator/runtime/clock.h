// Where a host's time comes from. All time enters the pure core through one of these.
#pragma once

#include <time.h>

#include <chrono>

#include "emulator/base/time.h"

namespace rdmaemu::runtime {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time Now() = 0;
};

// CLOCK_MONOTONIC: one base for all hosts of a machine, so that their traces can be merged.
class RealClock final : public Clock {
 public:
  Time Now() override {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return Time(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
  }
};

}  // namespace rdmaemu::runtime
