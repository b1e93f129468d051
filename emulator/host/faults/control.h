// The calls that add, list, wait for and release fault rules while the host runs (`rdmaemu fault`).
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "emulator/abi/calls.h"
#include "emulator/cm/cm.h"
#include "emulator/host/calls/reply.h"
#include "emulator/host/faults/doors.h"
#include "emulator/host/faults/host_faults.h"

namespace rdmaemu {

class FaultControl {
 public:
  FaultControl(HostFaults& faults, FaultDoors& doors, cm::Cm& cm)
      : faults_(faults), doors_(doors), cm_(cm) {}

  // Executes one of the kFault* calls (calls.h describes input and output). EMSGSIZE for a text
  // that is too long, and EINVAL for an incomplete struct.
  Reply Call(Time now, ProcessId process, CallOp op, std::span<const std::byte> body);
  // Returns the reply of a kFaultWait that has ended.
  std::optional<LateReply> TakeLate();

 private:
  Reply Wait(ProcessId process, std::span<const std::byte> body);
  void Release(Time now, const fault::Release& release);

  HostFaults& faults_;
  FaultDoors& doors_;
  cm::Cm& cm_;
};

}  // namespace rdmaemu
