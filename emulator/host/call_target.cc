#include "emulator/host/call_target.h"

#include <cstring>

namespace rdmaemu {

CallTarget TargetOf(Verbs& verbs, GroupId group, uint32_t op, std::span<const std::byte> message) {
  uint32_t first = 0;
  if (message.size() < sizeof(CallHeader) + sizeof first) return {};
  std::memcpy(&first, message.data() + sizeof(CallHeader), sizeof first);
  const auto call = CallOp{op};
  if (call == CallOp::kOpenDevice) {
    for (const Device* device : verbs.devices()) {
      if (device->index == first) return {device, nullptr};
    }
    return {};
  }
  const bool has_handle =
      (call > CallOp::kOpenDevice && call < CallOp::kCmCreateChannel) || IsAsked(call);
  if (!has_handle) return {};
  CallTarget target{verbs.DeviceOfHandle(group, first), nullptr};
  if (const Result<const QueuePair*> qp = verbs.FindQpByHandle(group, first)) target.qp = *qp;
  return target;
}

}  // namespace rdmaemu
