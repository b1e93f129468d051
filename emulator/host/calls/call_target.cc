#include "emulator/host/calls/call_target.h"

#include <cstring>

namespace rdmaemu {
CallTarget TargetOf(Verbs& verbs, GroupId group, uint32_t op, std::span<const std::byte> message) {
  uint32_t first = 0;
  if (message.size() < sizeof(CallHeader) + sizeof first) return {};
  std::memcpy(&first, message.data() + sizeof(CallHeader), sizeof first);
  const CallInfo* const info = InfoOf(op);
  if (info == nullptr || info->about == CallAbout::kNothing) return {};
  if (info->about == CallAbout::kDevice) {
    for (const Device* device : verbs.devices()) {
      if (device->index == first) return {device, nullptr};
    }
    return {};
  }
  CallTarget target{verbs.DeviceOfHandle(group, first), nullptr};
  if (const Result<const QueuePair*> qp = verbs.FindQpByHandle(group, first)) target.qp = *qp;
  return target;
}

}  // namespace rdmaemu
