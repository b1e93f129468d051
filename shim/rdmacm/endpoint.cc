// Endpoints and synchronous listeners (rdma_create_ep(3), rdma_destroy_ep(3), rdma_get_request(3)).
#include <cstring>

#include "shim/rdmacm/internal.h"

namespace rdmaemu::rdmacm {
namespace {

constexpr int kResolveTimeoutMs = 2000;

int MakePassive(Id& id, const rdma_addrinfo& info, ibv_pd* pd, const ibv_qp_init_attr* attributes) {
  if (rdma_bind_addr(&id, info.ai_src_addr) != 0) return -1;
  if (pd != nullptr) id.pd = pd;
  if (attributes == nullptr) return 0;
  id.endpoint_qp = *attributes;
  id.endpoint_qp->qp_type = static_cast<ibv_qp_type>(info.ai_qp_type);
  return 0;
}

int MakeActive(Id& id, const rdma_addrinfo& info, ibv_pd* pd, ibv_qp_init_attr* attributes) {
  sockaddr* source = info.ai_src_len != 0 ? info.ai_src_addr : nullptr;
  if (rdma_resolve_addr(&id, source, info.ai_dst_addr, kResolveTimeoutMs) != 0) return -1;
  if (info.ai_route_len != 0) {
    if (rdma_set_option(&id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, info.ai_route,
                        info.ai_route_len) != 0) {
      return -1;
    }
    if (Complete(id) != 0) return -1;
  } else if (rdma_resolve_route(&id, kResolveTimeoutMs) != 0) {
    return -1;
  }
  if (attributes != nullptr) {
    attributes->qp_type = static_cast<ibv_qp_type>(info.ai_qp_type);
    if (rdma_create_qp(&id, pd, attributes) != 0) return -1;
  }
  if (info.ai_connect_len != 0) {
    if (info.ai_connect == nullptr || info.ai_connect_len > sizeof(id.connect_data))
      return Fail(EINVAL);
    std::memcpy(id.connect_data, info.ai_connect, info.ai_connect_len);
    id.connect_length = static_cast<uint8_t>(info.ai_connect_len);
  }
  return 0;
}

}  // namespace
}  // namespace rdmaemu::rdmacm

extern "C" {

int rdma_create_ep(rdma_cm_id** id, rdma_addrinfo* res, ibv_pd* pd,
                   ibv_qp_init_attr* qp_init_attr) {
  using namespace rdmaemu::rdmacm;
  if (id == nullptr || res == nullptr) return Fail(EINVAL);
  rdma_cm_id* made = nullptr;
  if (CreateId(nullptr, &made, nullptr, static_cast<rdma_port_space>(res->ai_port_space),
               static_cast<ibv_qp_type>(res->ai_qp_type)) != 0) {
    return -1;
  }
  const int result = (res->ai_flags & RAI_PASSIVE) != 0
                         ? MakePassive(Private(made), *res, pd, qp_init_attr)
                         : MakeActive(Private(made), *res, pd, qp_init_attr);
  if (result != 0) {
    const int error = errno;
    rdma_destroy_ep(made);
    return Fail(error);
  }
  *id = made;
  return 0;
}

void rdma_destroy_ep(rdma_cm_id* id) {
  if (id == nullptr) return;
  if (id->qp != nullptr) rdma_destroy_qp(id);
  if (id->srq != nullptr) rdma_destroy_srq(id);
  rdmaemu::rdmacm::DestroyIdSurely(*id);
}

int rdma_get_request(rdma_cm_id* listen, rdma_cm_id** id) {
  using namespace rdmaemu::rdmacm;
  if (listen == nullptr || id == nullptr) return Fail(EINVAL);
  Id& listener = Private(listen);
  if (!listener.synchronous) return Fail(EINVAL);
  if (listen->event != nullptr) {
    rdma_ack_cm_event(listen->event);
    listen->event = nullptr;
  }
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(listen->channel, &event) != 0) return -1;
  if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
    listen->event = event;
    return Fail(EINVAL);
  }
  if (listener.endpoint_qp.has_value()) {
    ibv_qp_init_attr attributes = *listener.endpoint_qp;
    const int error = Uninterrupted(
        [&] { return rdma_create_qp(event->id, listen->pd, &attributes) == 0 ? 0 : errno; });
    if (error != 0) {
      // The endpoint cannot use the request, and only this function has the request's id.
      // Destroying the id sends the peer a REJ.
      DestroyIdSurely(*event->id);
      rdma_ack_cm_event(event);
      return Fail(error);
    }
  }
  event->id->event = event;
  *id = event->id;
  return 0;
}

}  // extern "C"
