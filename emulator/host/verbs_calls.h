// Executes the verbs calls of calls.h: converts bytes to requests of class Verbs, and results to
// bytes. This file checks sizes and enumerations from programs.
#pragma once

#include <cstddef>
#include <span>

#include "emulator/host/host.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu {

// Executes one call from kListDevices to kDetachMcast. `in` must be exactly the call's In (EINVAL
// otherwise). kListDevices accepts an empty input or a Nothing. A call without an Out in calls.h
// returns an empty body. kModifySrq is an exception: it returns SrqOut, because a resized queue has
// other memory. ENOSYS for other calls.
Reply DispatchVerbs(Verbs& verbs, Time now, GroupId group, ProcessId process, CallOp op,
                    std::span<const std::byte> in);

}  // namespace rdmaemu
