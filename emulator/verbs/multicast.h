// Multicast groups of a host. A QP receives a group's datagrams under two conditions. The QP is
// attached to the group (ibv_attach_mcast), which is a filter in the device. The QP's device has
// joined the group through any QP or id (rdma_join_multicast), which makes the network deliver.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "emulator/base/net_address.h"
#include "emulator/base/result.h"

namespace rdmaemu {

struct QueuePair;

class MulticastGroups {
 public:
  // Attaches the QP. A second attachment has no effect, as in rxe. EINVAL when the QP is no UD QP
  // or the address is no multicast address. ENOMEM above the limits of the QP's profile
  // (max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach).
  Status Attach(QueuePair& qp, const NetAddress& group);
  Status Detach(QueuePair& qp, const NetAddress& group);  // EINVAL when not attached
  void DetachAll(QueuePair& qp);
  void SetJoined(uint32_t device, const NetAddress& group, bool joined);
  // Returns the attached QPs in the order of attachment. Without `device`: of all devices.
  std::vector<QueuePair*> Receivers(const NetAddress& group, std::optional<uint32_t> device) const;

 private:
  struct Group {
    std::vector<QueuePair*> attached;
    bool joined = false;
  };
  struct Totals {
    int64_t groups = 0, attachments = 0;  // groups with attached QPs
  };
  using Groups = std::map<std::pair<NetAddress, uint32_t>, Group>;

  void Remove(Groups::iterator group, QueuePair& qp);
  Groups::iterator ForgetIfUnused(Groups::iterator group);

  Groups groups_;                      // by address and device
  std::map<uint32_t, Totals> totals_;  // by device
};

}  // namespace rdmaemu
