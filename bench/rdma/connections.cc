// Connections per second: rdma_cm connections from address resolution to destruction, many at a
// time.
#include <poll.h>

#include "bench/rdma/transfer.h"

namespace rdma_bench {
namespace {

constexpr int kResolve_ms = 5000;
constexpr uint32_t kDepth = 16;  // small queues, because connecting is measured

void Start(Endpoint& endpoint, sockaddr_in destination) {
  rdma_cm_id* const id = endpoint.NewId();
  sockaddr_in source = endpoint.own_address();
  Require(rdma_resolve_addr(id, reinterpret_cast<sockaddr*>(&source),
                            reinterpret_cast<sockaddr*>(&destination), kResolve_ms) == 0,
          "rdma_resolve_addr");
}

void End(rdma_cm_id* id) {
  rdma_destroy_qp(id);
  Require(rdma_destroy_id(id) == 0, "rdma_destroy_id");
}

// Gets the next event and acknowledges it, so that its id may be destroyed.
struct Happened {
  rdma_cm_event_type event;
  rdma_cm_id* id;
  int status;
};
Happened NextEvent(Endpoint& endpoint) {
  rdma_cm_event* event = nullptr;
  Require(rdma_get_cm_event(endpoint.channel(), &event) == 0, "rdma_get_cm_event");
  const Happened happened{event->event, event->id, event->status};
  rdma_ack_cm_event(event);
  return happened;
}

[[noreturn]] void FailUnexpected(const Happened& happened) {
  throw Failure(std::string("unexpected ") + rdma_event_str(happened.event) + ", status " +
                std::to_string(happened.status));
}

}  // namespace

Volume ConnectFor(Endpoint& endpoint, const std::string& peer, uint16_t port, unsigned in_flight,
                  double seconds) {
  const sockaddr_in destination = Ipv4Address(peer, port);
  Volume volume{0, 0};
  const double begin = NowSeconds();
  for (unsigned i = 0; i < in_flight; i++) Start(endpoint, destination);
  for (unsigned alive = in_flight; alive > 0;) {
    const Happened happened = NextEvent(endpoint);
    rdma_conn_param parameters = ConnectionParameters();
    switch (happened.event) {
      case RDMA_CM_EVENT_ADDR_RESOLVED:
        Require(rdma_resolve_route(happened.id, kResolve_ms) == 0, "rdma_resolve_route");
        break;
      case RDMA_CM_EVENT_ROUTE_RESOLVED:
        endpoint.CreateQp(happened.id, kDepth, kDepth);
        Require(rdma_connect(happened.id, &parameters) == 0, "rdma_connect");
        break;
      case RDMA_CM_EVENT_ESTABLISHED:
        Require(rdma_disconnect(happened.id) == 0, "rdma_disconnect");
        break;
      case RDMA_CM_EVENT_DISCONNECTED:
        End(happened.id);
        volume.messages++;
        if (NowSeconds() - begin < seconds) {
          Start(endpoint, destination);
        } else {
          alive--;
        }
        break;
      case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        break;
      default:
        FailUnexpected(happened);
    }
  }
  volume.seconds = NowSeconds() - begin;
  return volume;
}

void AcceptAll(Endpoint& endpoint, Control& control) {
  unsigned alive = 0;
  for (bool stopped = false; !stopped || alive > 0;) {
    pollfd ready[] = {{endpoint.channel()->fd, POLLIN, 0}, {control.fd(), POLLIN, 0}};
    if (poll(ready, stopped ? 1 : 2, -1) < 0) FailErrno("poll");
    if (!stopped && ready[1].revents != 0) {
      control.Receive<Order>();
      stopped = true;
    }
    if (ready[0].revents == 0) continue;
    const Happened happened = NextEvent(endpoint);
    rdma_conn_param parameters = ConnectionParameters();
    switch (happened.event) {
      case RDMA_CM_EVENT_CONNECT_REQUEST:
        alive++;
        endpoint.CreateQp(happened.id, kDepth, kDepth);
        Require(rdma_accept(happened.id, &parameters) == 0, "rdma_accept");
        break;
      case RDMA_CM_EVENT_DISCONNECTED:
        End(happened.id);
        alive--;
        break;
      case RDMA_CM_EVENT_ESTABLISHED:
      case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        break;
      default:
        FailUnexpected(happened);
    }
  }
}

}  // namespace rdma_bench
