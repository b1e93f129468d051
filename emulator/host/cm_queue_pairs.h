// Adapts the host's verbs objects to connection management: the queue pairs that iw_cm moves to
// another state.
#pragma once

#include <cstdint>

#include "emulator/cm/environment.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu {

class HostQueuePairs final : public cm::CmQueuePairs {
 public:
  explicit HostQueuePairs(Verbs& verbs) : verbs_(verbs) {}

  Status CheckConnectable(GroupId group, const NetAddress& local, uint32_t qpn) override {
    return verbs_.CheckConnectable(group, local, qpn);
  }
  Status ConnectQp(Time now, GroupId group, uint32_t qpn, const QpConnection& connection) override {
    return verbs_.ConnectQp(now, group, qpn, connection);
  }
  void DisconnectQp(Time now, GroupId group, const NetAddress& local, uint32_t qpn) override {
    verbs_.DisconnectQp(now, group, local, qpn);
  }

 private:
  Verbs& verbs_;
};

}  // namespace rdmaemu
