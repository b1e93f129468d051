#include "emulator/embedded/call_routing.h"

#include <cstring>

#include "emulator/base/id_space.h"

namespace rdmaemu::embedded {

std::optional<CallRoute> RouteOf(uint32_t op) {
  const CallInfo* const info = InfoOf(op);
  return info == nullptr ? std::nullopt : std::optional(info->route);
}

bool IsDestroyCall(uint32_t op) { return HasTrait(op, kDestroys); }

uint32_t HostOfCall(uint32_t op, const void* in, uint32_t in_size, uint32_t entered) {
  // Any host refuses a malformed call.
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
