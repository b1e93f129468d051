// The subnet administrator of ports with LIDs (cma_query_ib_route of the kernel). The administrator
// answers from the host's own addresses and routes. It has no path to a GID outside all networks of
// the host. No answer arrives from a silent network, or while the port is down.
#include <chrono>

#include "emulator/cm/rdma_ids.h"

namespace rdmaemu::cm {

// A query that the administrator refuses has -EINVAL for every status of the MAD
// (ib_sa_path_rec_callback, recv_handler of sa_query.c).
std::optional<int> RdmaIds::AdministratorStatus(const CmaId& id, const PathRecord& path) const {
  if (!addresses_.IsPortUp(id.device->index)) return std::nullopt;
  const NetAddress own = AddressOfGid(path.sgid), peer = AddressOfGid(path.dgid);
  // A port lacks the partition. Only the ports of this host are checked, because a host cannot read
  // the P_Key tables of other hosts.
  if (!addresses_.FindPkey(own, path.pkey)) return -EINVAL;
  if (const CmDevice* device = addresses_.DeviceOf(peer)) {
    if (!addresses_.IsPortUp(device->index)) return -EINVAL;
    return addresses_.FindPkey(peer, path.pkey) ? 0 : -EINVAL;
  }
  switch (addresses_.FindRoute(peer).kind) {
    case Reach::Kind::kFound:
      return 0;
    case Reach::Kind::kSilent:
      return std::nullopt;
    case Reach::Kind::kNone:
      break;
  }
  return -EINVAL;
}

// cma_query_handler. An unanswered query ends at its time-out (Expire).
void RdmaIds::QueryPath(Time now, CmaId& id, uint32_t timeout_ms) {
  const PathRecord path = MakePath(id);
  const std::optional<int> status = AdministratorStatus(id, path);
  if (!status) {
    id.state = IdState::kRouteQuery;
    queries_.Arm(id.handle, now + std::chrono::milliseconds(timeout_ms));
    return;
  }
  if (*status != 0) {
    Push(now, id, EventType::kRouteError, *status);
    return;
  }
  id.path = path;
  id.state = IdState::kRouteResolved;
  Push(now, id, EventType::kRouteResolved, 0);
}

}  // namespace rdmaemu::cm
