// Executes calls of connection management: event channels, and the commands of rdma_user_cm.h.
#pragma once

#include <cstddef>
#include <span>

#include "emulator/abi/calls.h"
#include "emulator/cm/cm.h"
#include "emulator/host/calls/reply.h"
#include "emulator/host/faults/cm.h"
#include "emulator/host/processes.h"

namespace rdmaemu {

class CmCalls {
 public:
  CmCalls(cm::Cm& cm, CmFaults& faults, const Processes& processes)
      : cm_(cm), faults_(faults), processes_(processes) {}

  static bool Has(CallOp op) {
    return op == CallOp::kCmCreateChannel || op == CallOp::kCmDestroyChannel ||
           op >= CallOp::kCmCommand;
  }
  // Executes a call that Has() accepts. `maker` is the calling process. EINVAL for a body of
  // another size, else the errors of cm::Cm.
  Reply Call(Time now, GroupId group, const Maker& maker, CallOp op,
             std::span<const std::byte> body);

 private:
  // Holds the largest response of rdma_user_cm.h.
  static constexpr size_t kMaxCmResponseBytes = 1024;

  Reply CreateChannel(GroupId group, const Maker& maker);
  Reply DestroyChannel(Time now, GroupId group, std::span<const std::byte> body);
  Reply Command(Time now, ProcessId process, GroupId group, uint32_t command,
                std::span<const std::byte> body);
  void ApplyEventRules(Time now, ProcessId process, std::span<std::byte> response);

  cm::Cm& cm_;
  CmFaults& faults_;
  const Processes& processes_;
};

}  // namespace rdmaemu
