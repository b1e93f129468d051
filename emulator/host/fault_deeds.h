// What a fault rule does to a host's objects: not in the middle of the moment that made it fire,
// but when the host has finished with that.
#pragma once

#include <variant>

#include "emulator/base/ids.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu {

// The QP goes to ERR, as after the completion that says so.
struct FailQpDeed {
  GroupId group;
  Handle qp;
};
using FaultDeed = std::variant<FailQpDeed>;

}  // namespace rdmaemu
