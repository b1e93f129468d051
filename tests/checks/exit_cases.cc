// Programs that exit with open objects.
#include <arpa/inet.h>

#include <vector>

#include "usage.h"

namespace {

enum class Left { kContext, kPd, kChannel, kCq, kSrq, kMr, kQp };

// Destroys everything except one object, and what the object needs.
template <Left kLeft>
void Leave(bool breaks) {
  Verbs verbs({.has_channel = true, .has_srq = true});
  verbs.MakeQp();
  if (breaks) {
    if (kLeft == Left::kQp) verbs.qp = nullptr;
    if (kLeft == Left::kMr) verbs.mr = nullptr;
    if (kLeft == Left::kSrq || kLeft == Left::kQp) verbs.srq = nullptr;
    if (kLeft == Left::kCq || kLeft == Left::kQp) verbs.cq = nullptr;
    if (kLeft == Left::kChannel || kLeft == Left::kCq || kLeft == Left::kQp) {
      verbs.channel = nullptr;
    }
    if (kLeft != Left::kContext && kLeft != Left::kChannel && kLeft != Left::kCq) {
      verbs.pd = nullptr;
    }
    verbs.context = nullptr;
  }
  verbs.Destroy();
}

void LeaveRejected(bool breaks) {
  Pair pair;
  CHECK(rdma_destroy_id(pair.listener) == 0);
  pair.listener = nullptr;
  pair.Request();
  pair.active.Await(RDMA_CM_EVENT_REJECTED);
  if (breaks) {
    rdma_destroy_qp(pair.active.id);
    pair.active.id = nullptr;
    pair.active.channel = nullptr;
  }
  pair.Destroy();
}

void LeaveEvent(bool breaks) {
  Pair pair;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = pair.port;
  address.sin_addr.s_addr = inet_addr(g_address);
  CHECK(rdma_resolve_addr(pair.active.id, nullptr, reinterpret_cast<sockaddr*>(&address), 2000) ==
        0);
  rdma_cm_event* const event = pair.active.Take(RDMA_CM_EVENT_ADDR_RESOLVED);
  if (breaks) return;
  CHECK(rdma_ack_cm_event(event) == 0);
  pair.Destroy();
}

void LeaveId(bool breaks) {
  Pair pair;
  if (breaks) pair.active = {};
  pair.Destroy();
}

void LeaveEventChannel(bool breaks) {
  rdma_event_channel* const channel = rdma_create_event_channel();
  if (!breaks) rdma_destroy_event_channel(channel);
}

void LeaveAh(bool breaks) {
  Verbs verbs;
  ibv_ah_attr attr{};
  attr.port_num = 1;
  attr.is_global = 1;
  attr.grh.hop_limit = 64;
  CHECK(ibv_query_gid(verbs.context, 1, 0, &attr.grh.dgid) == 0);
  ibv_ah* const ah = ibv_create_ah(verbs.pd, &attr);
  CHECK(ah != nullptr);
  if (breaks) {
    verbs.pd = nullptr;
    verbs.context = nullptr;
  } else {
    CHECK(ibv_destroy_ah(ah) == 0);
  }
  verbs.Destroy();
}

void LeaveList(bool breaks) {
  ibv_device** const list = ibv_get_device_list(nullptr);
  if (!breaks) ibv_free_device_list(list);
}

}  // namespace

const std::vector<Case> kExitCases = {
    {"CM-009", LeaveRejected},
    {"EXIT-001", LeaveEvent},
    {"EXIT-002", LeaveId},
    {"EXIT-003", LeaveEventChannel},
    {"EXIT-004", Leave<Left::kQp>},
    {"EXIT-005", Leave<Left::kCq>},
    {"EXIT-006", Leave<Left::kChannel>},
    {"EXIT-007", Leave<Left::kMr>},
    {"EXIT-008", Leave<Left::kPd>},
    {"EXIT-009", Leave<Left::kSrq>},
    {"EXIT-010", LeaveAh},
    {"EXIT-011", Leave<Left::kContext>},
    {"EXIT-012", LeaveList},
};
