// Events of ids when a device is removed or an address moves (cma_process_remove,
// cma_netdev_change).
#include <algorithm>

#include "emulator/cm/rdma_ids.h"

namespace rdmaemu::cm {

template <class Match>
std::vector<CmaId*> RdmaIds::Attached(const Match& match) {
  std::vector<CmaId*> attached;
  for (auto& [handle, id] : ids_) {
    if (id.device && match(id)) attached.push_back(&id);
  }
  std::ranges::sort(attached, {}, &CmaId::attach_order);
  return attached;
}

void RdmaIds::DeviceRemoved(Time now, uint32_t device_index) {
  const std::vector<CmaId*> bound =
      Attached([&](const CmaId& id) { return id.device->index == device_index; });
  // Changes all states first, so that no id gets DISCONNECTED because another id of the device
  // ended.
  for (CmaId* id : bound) id->state = IdState::kRemoved;
  for (CmaId* id : bound) {
    if (id->IsIwarp()) EndRemovedIwarpPeer(now, *id);
    Push(now, *id, EventType::kDeviceRemoval, 0);
    ReleaseResources(now, *id);
  }
}

void RdmaIds::AddressMoved(Time now, const NetAddress& address, uint32_t to_device_index) {
  const std::vector<CmaId*> bound = Attached([&](const CmaId& id) {
    return id.source().address == address && id.device->index != to_device_index;
  });
  for (CmaId* id : bound) Push(now, *id, EventType::kAddrChange, 0);
}

}  // namespace rdmaemu::cm
