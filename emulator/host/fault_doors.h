// All the doors of a host where fault rules stand, as one thing that time passes for.
#pragma once

#include <optional>

#include "emulator/host/faults_async.h"
#include "emulator/host/faults_calls.h"
#include "emulator/host/faults_cm.h"
#include "emulator/host/faults_completions.h"

namespace rdmaemu {

struct FaultDoors {
  CallFaults calls;
  CmFaults cm;
  CompletionFaults completions;
  AsyncFaults async;

  void Expire(Time now) {
    calls.Expire(now);
    cm.Expire(now);
    completions.Expire(now);
    async.Expire(now);
  }
  std::optional<Time> NextDeadline() const {
    std::optional<Time> next;
    for (const std::optional<Time>& each : {calls.NextDeadline(), cm.NextDeadline(),
                                            completions.NextDeadline(), async.NextDeadline()}) {
      if (each && (!next || *each < *next)) next = each;
    }
    return next;
  }
};

}  // namespace rdmaemu
