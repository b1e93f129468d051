// The calls that add, list, wait for and release fault rules while the host runs (`rdmaemu fault`).
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>

#include "emulator/abi/calls.h"
#include "emulator/host/calls/reply.h"
#include "emulator/host/faults/host_faults.h"

namespace rdmaemu {

// The owner of the items that rules hold: an emulated host's doors, or the decision server of the
// system backend.
struct FaultHolder {
  std::function<void(Time now, const fault::Release&)> release;
  std::function<void(fault::HeldCounts&)> count_held;
};

class FaultControl {
 public:
  FaultControl(HostFaults& faults, FaultHolder holder)
      : faults_(faults), holder_(std::move(holder)) {}

  // Executes one of the kFault* calls (calls.h describes input and output). EMSGSIZE for a text
  // that is too long, and EINVAL for an incomplete struct.
  Reply Call(Time now, ProcessId process, CallOp op, std::span<const std::byte> body);
  // Returns the reply of a kFaultWait that has ended.
  std::optional<LateReply> TakeLate();

 private:
  Reply Wait(ProcessId process, std::span<const std::byte> body);
  // Releases the items and traces one record for each rule that held items.
  void Release(Time now, ProcessId process, const fault::Release& release);

  HostFaults& faults_;
  FaultHolder holder_;
};

}  // namespace rdmaemu
