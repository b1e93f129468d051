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

uint32_t IdOf(uint32_t op, std::span<const std::byte> message) {
  struct Place {
    uint32_t command;
    size_t offset;
  };
  constexpr Place kPlaces[] = {
      {RDMA_USER_CM_CMD_CONNECT, offsetof(CmCall<rdma_ucm_connect>, command.id)},
      {RDMA_USER_CM_CMD_ACCEPT, offsetof(CmCall<rdma_ucm_accept>, command.id)},
      {RDMA_USER_CM_CMD_REJECT, offsetof(CmCall<rdma_ucm_reject>, command.id)},
      {RDMA_USER_CM_CMD_DISCONNECT, offsetof(CmCall<rdma_ucm_disconnect>, command.id)},
      {RDMA_USER_CM_CMD_INIT_QP_ATTR, offsetof(CmCall<rdma_ucm_init_qp_attr>, command.id)},
  };
  for (const Place& place : kPlaces) {
    uint32_t id = 0;
    const size_t begin = sizeof(CallHeader) + place.offset;
    if (op != static_cast<uint32_t>(CallOp::kCmCommand) + place.command) continue;
    if (message.size() < begin + sizeof id) return 0;
    std::memcpy(&id, message.data() + begin, sizeof id);
    return id;
  }
  return 0;
}

}  // namespace rdmaemu
