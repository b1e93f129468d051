// One side of a connection, for tests of time. Prints its events, one per line. Uses public headers
// only.
//
//   worker serve ADDRESS PORT ACCEPTS_AFTER_MS   prints "listening"; a negative time: never accepts
//   worker connect ADDRESS PORT [TIMES]          prints each event and its status, in order;
//                                                disconnects an established connection and waits
//                                                for the end of timewait; repeats this TIMES times
#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

namespace {

[[noreturn]] void Die(const char* what) {
  perror(what);
  exit(1);
}

sockaddr_in SocketAddress(const char* address, const char* port) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(static_cast<uint16_t>(atoi(port)));
  if (inet_pton(AF_INET, address, &name.sin_addr) != 1) Die("address");
  return name;
}

struct Event {
  rdma_cm_event_type type;
  int status;
  rdma_cm_id* id;
};

Event Next(rdma_event_channel* channel) {
  rdma_cm_event* event;
  if (rdma_get_cm_event(channel, &event) != 0) Die("rdma_get_cm_event");
  const Event copy{event->event, event->status, event->id};
  printf("%s %d\n", rdma_event_str(copy.type), copy.status);
  fflush(stdout);
  rdma_ack_cm_event(event);
  return copy;
}

void MakeQp(rdma_cm_id* id) {
  ibv_qp_init_attr attr{};
  attr.qp_type = IBV_QPT_RC;
  attr.cap = {1, 1, 1, 1, 0};
  if (rdma_create_qp(id, nullptr, &attr) != 0) Die("rdma_create_qp");
}

int Serve(rdma_event_channel* channel, sockaddr_in& name, int accepts_after_ms) {
  rdma_cm_id* listener;
  if (rdma_create_id(channel, &listener, nullptr, RDMA_PS_TCP) != 0 ||
      rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&name)) != 0 ||
      rdma_listen(listener, 8) != 0) {
    Die("rdma_listen");
  }
  printf("listening\n");
  fflush(stdout);
  for (;;) {
    const Event event = Next(channel);
    if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST && accepts_after_ms >= 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(accepts_after_ms));
      MakeQp(event.id);
      if (rdma_accept(event.id, nullptr) != 0) Die("rdma_accept");
    } else if (event.type == RDMA_CM_EVENT_DISCONNECTED) {
      rdma_disconnect(event.id);
    }
  }
}

void Connect(rdma_event_channel* channel, sockaddr_in& name) {
  rdma_cm_id* id;
  if (rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0 ||
      rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&name), 2000) != 0 ||
      Next(channel).type != RDMA_CM_EVENT_ADDR_RESOLVED || rdma_resolve_route(id, 2000) != 0 ||
      Next(channel).type != RDMA_CM_EVENT_ROUTE_RESOLVED) {
    Die("rdma_resolve_addr");
  }
  MakeQp(id);
  rdma_conn_param parameters{};
  const auto begin = std::chrono::steady_clock::now();
  if (rdma_connect(id, &parameters) != 0) Die("rdma_connect");
  const Event event = Next(channel);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  printf("after %.3f ms\n", took.count());
  if (event.type == RDMA_CM_EVENT_ESTABLISHED) {
    if (rdma_disconnect(id) != 0) Die("rdma_disconnect");
    while (Next(channel).type != RDMA_CM_EVENT_TIMEWAIT_EXIT) {
    }
  }
  rdma_destroy_qp(id);
  rdma_destroy_id(id);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const std::string role = argv[1];
  rdma_event_channel* channel = rdma_create_event_channel();
  if (channel == nullptr) Die("rdma_create_event_channel");
  sockaddr_in name = SocketAddress(argv[2], argv[3]);
  if (role == "serve" && argc == 5) return Serve(channel, name, atoi(argv[4]));
  if (role == "connect" && argc <= 5) {
    const int times = argc == 5 ? atoi(argv[4]) : 1;
    for (int i = 0; i < times; i++) Connect(channel, name);
    return 0;
  }
  return 2;
}
