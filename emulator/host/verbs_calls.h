// The verbs calls of calls.h: bytes to requests of class Verbs and answers back to bytes. Here is
// the door at which sizes and enumerations from programs are checked.
#pragma once

#include <cstddef>
#include <span>

#include "emulator/host/host.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu {

// Does one call from kListDevices to kDetachMcast. `in` must be exactly the call's In (EINVAL
// otherwise; kListDevices takes nothing or a Nothing). Calls for which calls.h names no Out answer
// an empty body, but kModifySrq answers SrqOut: a resized queue has moved. ENOSYS for other calls.
Reply DispatchVerbs(Verbs& verbs, Time now, GroupId group, ProcessId process, CallOp op,
                    std::span<const std::byte> in);

}  // namespace rdmaemu
