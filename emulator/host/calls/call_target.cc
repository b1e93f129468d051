#include "emulator/host/calls/call_target.h"

#include <cstring>

namespace rdmaemu {
namespace {

constexpr CallOp CmOp(uint32_t command) {
  return CallOp{static_cast<uint32_t>(CallOp::kCmCommand) + command};
}
// Where the manager is iw_cm, it is these that end a queue pair.
constexpr CallOp kCmDisconnect = CmOp(RDMA_USER_CM_CMD_DISCONNECT);
constexpr CallOp kCmDestroyId = CmOp(RDMA_USER_CM_CMD_DESTROY_ID);

}  // namespace

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

bool EndsWhatPostsNeed(uint32_t op) {
  if (CallOp{op} == kCmDisconnect || CallOp{op} == kCmDestroyId) return true;
  switch (CallOp{op}) {
    case CallOp::kCloseDevice:
    case CallOp::kDeregMr:
    case CallOp::kReregMr:
    case CallOp::kDeallocMw:
    case CallOp::kModifyQp:
    case CallOp::kDestroyQp:
    case CallOp::kDestroyAh:
      return true;
    default:
      return false;
  }
}

bool CountsCompletions(uint32_t op) { return CallOp{op} == CallOp::kResizeCq; }

bool EndsObjects(uint32_t op) {
  switch (CallOp{op}) {
    case CallOp::kCloseDevice:
    case CallOp::kDestroyCq:
    case CallOp::kDestroySrq:
    case CallOp::kDestroyQp:
      return true;
    default:
      return false;
  }
}

}  // namespace rdmaemu
