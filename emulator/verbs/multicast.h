// Multicast groups of a host. A QP takes a group's datagrams when two things are so: it is attached
// (ibv_attach_mcast), and its device has joined the group (rdma_join_multicast), by whatever QP or
// id. The first is a filter in the device, the second is what makes the network deliver.
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
  // EINVAL unless a UD QP and a multicast address; ENOMEM above the limits of the QP's profile
  // (max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach). Attaching twice is the same as
  // once, as rxe has it.
  Status Attach(QueuePair& qp, const NetAddress& group);
  Status Detach(QueuePair& qp, const NetAddress& group);  // EINVAL when not attached
  void DetachAll(QueuePair& qp);
  void SetJoined(uint32_t device, const NetAddress& group, bool joined);
  // In the order of attachment; of all devices without `device`.
  std::vector<QueuePair*> Receivers(const NetAddress& group, std::optional<uint32_t> device) const;

 private:
  struct Group {
    std::vector<QueuePair*> attached;
    bool joined = false;
  };
  struct Totals {
    int64_t groups = 0, attachments = 0;  // groups that have attached QPs
  };
  using Groups = std::map<std::pair<NetAddress, uint32_t>, Group>;

  void Remove(Groups::iterator group, QueuePair& qp);
  Groups::iterator ForgetIfUnused(Groups::iterator group);

  Groups groups_;                      // by address and device
  std::map<uint32_t, Totals> totals_;  // by device
};

}  // namespace rdmaemu
