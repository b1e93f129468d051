#include "emulator/embedded/call_routing.h"

#include <cstring>

#include "emulator/base/id_space.h"

namespace rdmaemu::embedded {

// Without a default: the compiler names a call that was forgotten.
std::optional<CallRoute> RouteOf(uint32_t op) {
  if (op >= static_cast<uint32_t>(CallOp::kCmCommand)) return CallRoute::kByNumber;  // the channel
  switch (CallOp{op}) {
    case CallOp::kHello:
    case CallOp::kHostStatus:
    case CallOp::kHostStop:
    case CallOp::kChangeDevice:
    case CallOp::kShareCallPage:
    case CallOp::kFaultAdd:
    case CallOp::kFaultRemove:
    case CallOp::kFaultClear:
    case CallOp::kFaultList:
    case CallOp::kFaultRelease:
    case CallOp::kFaultWait:
    case CallOp::kClock:
      return CallRoute::kEntered;
    case CallOp::kListDevices:
      return CallRoute::kByDevice;
    case CallOp::kCmCreateChannel:
      return CallRoute::kByChannel;
    case CallOp::kMapSegment:
    case CallOp::kOpenDevice:
    case CallOp::kCloseDevice:
    case CallOp::kQueryDevice:
    case CallOp::kQueryPort:
    case CallOp::kQueryGids:
    case CallOp::kQueryPkey:
    case CallOp::kGetAsyncEvent:
    case CallOp::kAllocPd:
    case CallOp::kDeallocPd:
    case CallOp::kRegMr:
    case CallOp::kReregMr:
    case CallOp::kDeregMr:
    case CallOp::kAllocMw:
    case CallOp::kDeallocMw:
    case CallOp::kCreateChannel:
    case CallOp::kDestroyChannel:
    case CallOp::kTakeChannelOverflow:
    case CallOp::kCreateCq:
    case CallOp::kResizeCq:
    case CallOp::kDestroyCq:
    case CallOp::kCreateSrq:
    case CallOp::kModifySrq:
    case CallOp::kQuerySrq:
    case CallOp::kDestroySrq:
    case CallOp::kCreateQp:
    case CallOp::kModifyQp:
    case CallOp::kQueryQp:
    case CallOp::kDestroyQp:
    case CallOp::kCreateAh:
    case CallOp::kDestroyAh:
    case CallOp::kAttachMcast:
    case CallOp::kDetachMcast:
    case CallOp::kPostSend:
    case CallOp::kPostRecv:
    case CallOp::kPostSrqRecv:
    case CallOp::kPollCq:
    case CallOp::kReqNotifyCq:
    case CallOp::kCmDestroyChannel:
    case CallOp::kCmCommand:
      return CallRoute::kByNumber;
  }
  return std::nullopt;
}

bool IsDestroyCall(uint32_t op) {
  constexpr auto kDestroyId =
      static_cast<uint32_t>(CallOp::kCmCommand) + RDMA_USER_CM_CMD_DESTROY_ID;
  if (op == kDestroyId) return true;
  switch (CallOp{op}) {
    case CallOp::kCloseDevice:
    case CallOp::kDeallocPd:
    case CallOp::kDeregMr:
    case CallOp::kDeallocMw:
    case CallOp::kDestroyChannel:
    case CallOp::kDestroyCq:
    case CallOp::kDestroySrq:
    case CallOp::kDestroyQp:
    case CallOp::kDestroyAh:
    case CallOp::kCmDestroyChannel:
      return true;
    default:
      return false;
  }
}

uint32_t HostOfCall(uint32_t op, const void* in, uint32_t in_size, uint32_t entered) {
  // What is malformed is refused by whatever host gets it.
  switch (RouteOf(op).value_or(CallRoute::kEntered)) {
    case CallRoute::kEntered:
      return entered;
    case CallRoute::kByNumber: {
      uint32_t number;
      if (in_size < sizeof number) return entered;
      std::memcpy(&number, in, sizeof number);
      return IdSpace::PartOf(number);
    }
    case CallRoute::kByChannel: {
      CmCreateChannelIn create{};
      if (in_size != sizeof create) return entered;
      std::memcpy(&create, in, sizeof create);
      return create.beside != 0 ? IdSpace::PartOf(create.beside) : entered;
    }
    case CallRoute::kByDevice: {
      ListDevicesIn list{};
      if (in_size != sizeof list) return entered;
      std::memcpy(&list, in, sizeof list);
      return list.of_index == 1 ? IdSpace::PartOf(list.index) : entered;
    }
  }
  return entered;
}

}  // namespace rdmaemu::embedded
