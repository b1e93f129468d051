// Both ends of a connection in one program. It repeats every call that failed temporarily and
// prints its results. A fault rule with errno = "EINTR" or "EAGAIN" must not change the output.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace {

constexpr uint16_t kPort = 7471;
constexpr int kTimeout_ms = 2000;
constexpr int kWait_ms = 20'000;  // for an event that must come

[[noreturn]] void Stop(const char* what, int error) {
  printf("%s: %s\n", what, strerror(error));
  exit(1);
}

// For functions that return -1 and set errno, or return an errno.
template <class Call>
void Do(const char* what, const Call& call) {
  for (;;) {
    const int result = call();
    if (result == 0) return;
    const int error = result < 0 ? errno : result;
    if (error != EINTR && error != EAGAIN) Stop(what, error);
  }
}
// For functions that return a pointer.
template <class Call>
auto Make(const char* what, const Call& call) {
  for (;;) {
    if (auto* const made = call()) return made;
    if (errno != EINTR && errno != EAGAIN) Stop(what, errno);
  }
}
#define DO(call) Do(#call, [&] { return (call); })
#define MAKE(call) Make(#call, [&] { return (call); })

void AwaitReadable(const char* what, int fd) {
  pollfd ready{fd, POLLIN, 0};
  int count;
  do {
    count = poll(&ready, 1, kWait_ms);
  } while (count < 0 && errno == EINTR);
  if (count != 1) Stop(what, ETIMEDOUT);
}

// Waits for one event of this type. The caller acknowledges the event.
rdma_cm_event* Expect(rdma_event_channel* channel, rdma_cm_event_type type) {
  rdma_cm_event* event = nullptr;
  AwaitReadable(rdma_event_str(type), channel->fd);
  DO(rdma_get_cm_event(channel, &event));
  printf("event %s, status %d\n", rdma_event_str(event->event), event->status);
  if (event->event != type) exit(1);
  return event;
}
void Pass(rdma_event_channel* channel, rdma_cm_event_type type) {
  rdma_ack_cm_event(Expect(channel, type));
}

void ExpectAsync(ibv_context* context, ibv_event_type type) {
  ibv_async_event event{};
  AwaitReadable("asynchronous event", context->async_fd);
  DO(ibv_get_async_event(context, &event));
  printf("asynchronous event %s\n", ibv_event_type_str(event.event_type));
  if (event.event_type != type) exit(1);
  ibv_ack_async_event(&event);
}

struct Side {
  rdma_cm_id* id;
  ibv_comp_channel* channel;
  ibv_cq* cq;
  ibv_mr* mr;
  char bytes[64];

  void Build(ibv_srq* srq) {
    ibv_context* const context = id->verbs;
    channel = MAKE(ibv_create_comp_channel(context));
    cq = MAKE(ibv_create_cq(context, 16, nullptr, channel, 0));
    DO(ibv_resize_cq(cq, 32));
    mr = MAKE(ibv_reg_mr(id->pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE));
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = cq;
    attributes.srq = srq;
    attributes.cap = {4, 4, 1, 1, 0};
    attributes.qp_type = IBV_QPT_RC;
    attributes.sq_sig_all = 1;
    DO(rdma_create_qp(id, id->pd, &attributes));
    DO(ibv_req_notify_cq(cq, 0));
  }
  ibv_sge Whole() { return {reinterpret_cast<uintptr_t>(bytes), sizeof bytes, mr->lkey}; }
  void Send() {
    ibv_sge sge = Whole();
    ibv_send_wr request{}, *bad = nullptr;
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    DO(ibv_post_send(id->qp, &request, &bad));
  }
  void Receive() {
    ibv_sge sge = Whole();
    ibv_recv_wr request{}, *bad = nullptr;
    request.sg_list = &sge;
    request.num_sge = 1;
    if (id->qp->srq != nullptr) {
      DO(ibv_post_srq_recv(id->qp->srq, &request, &bad));
    } else {
      DO(ibv_post_recv(id->qp, &request, &bad));
    }
  }
  void Complete(const char* what) {
    ibv_cq* from = nullptr;
    void* context = nullptr;
    AwaitReadable(what, channel->fd);
    DO(ibv_get_cq_event(channel, &from, &context));
    ibv_ack_cq_events(from, 1);
    DO(ibv_req_notify_cq(cq, 0));
    ibv_wc wc{};
    int count;
    while ((count = ibv_poll_cq(cq, 1, &wc)) < 0) {
    }
    printf("%s: %d, %s, %u bytes\n", what, count, ibv_wc_status_str(wc.status), wc.byte_len);
    if (count != 1 || wc.status != IBV_WC_SUCCESS) exit(1);
  }
  void Destroy() {
    rdma_destroy_qp(id);
    DO(ibv_dereg_mr(mr));
    DO(ibv_destroy_cq(cq));
    DO(ibv_destroy_comp_channel(channel));
  }
};

// Returns a QP in INIT.
ibv_qp* MakeQp(ibv_qp_type type, ibv_pd* pd, ibv_cq* cq) {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = cq;
  attributes.cap = {1, 1, 1, 1, 0};
  attributes.qp_type = type;
  attributes.sq_sig_all = 1;
  ibv_qp* const qp = MAKE(ibv_create_qp(pd, &attributes));
  ibv_qp_attr state{};
  state.qp_state = IBV_QPS_INIT;
  state.port_num = 1;
  state.qkey = 17;
  DO(ibv_modify_qp(qp, &state,
                   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                       (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
  return qp;
}

void UseObjects(ibv_context* context, ibv_pd* pd) {
  ibv_device_attr device{};
  ibv_port_attr port{};
  ibv_gid gid{};
  __be16 pkey = 0;
  DO(ibv_query_device(context, &device));
  DO(ibv_query_port(context, 1, &port));
  DO(ibv_query_gid(context, 1, 1, &gid));
  DO(ibv_query_pkey(context, 1, 0, &pkey));
  printf("port state %d, P_Key %04x\n", port.state, ntohs(pkey));

  static char bytes[4096];
  ibv_mr* const mr = MAKE(ibv_reg_mr(pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE));
  // rdma_rxe refuses this call.
  int error;
  do {
    error = ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0) == 0 ? 0 : errno;
  } while (error == EINTR || error == EAGAIN);
  printf("ibv_rereg_mr: %s\n", strerror(error));
  DO(ibv_dereg_mr(mr));
  ibv_mw* const mw = MAKE(ibv_alloc_mw(pd, IBV_MW_TYPE_2));
  DO(ibv_dealloc_mw(mw));
  ibv_ah_attr to{};
  to.is_global = 1;
  to.port_num = 1;
  to.grh.dgid = gid;
  to.grh.sgid_index = 1;
  ibv_ah* const ah = MAKE(ibv_create_ah(pd, &to));
  DO(ibv_destroy_ah(ah));

  ibv_cq* const cq = MAKE(ibv_create_cq(context, 4, nullptr, nullptr, 0));
  ibv_qp* const qp = MakeQp(IBV_QPT_UD, pd, cq);
  ibv_qp_attr state{};
  ibv_qp_init_attr attributes{};
  DO(ibv_query_qp(qp, &state, IBV_QP_STATE, &attributes));
  ibv_gid group{};
  group.raw[0] = 0xff;
  group.raw[1] = 0x0e;
  group.raw[15] = 1;
  DO(ibv_attach_mcast(qp, &group, 0));
  DO(ibv_detach_mcast(qp, &group, 0));
  DO(ibv_destroy_qp(qp));
  DO(ibv_destroy_cq(cq));
}

// Joins and leaves a multicast group with a datagram id.
void UseGroup(rdma_event_channel* channel, sockaddr* address) {
  rdma_cm_id* id = nullptr;
  DO(rdma_create_id(channel, &id, nullptr, RDMA_PS_UDP));
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(0xef010203);  // 239.1.2.3
  auto* const group = reinterpret_cast<sockaddr*>(&name);
  DO(rdma_resolve_addr(id, address, group, kTimeout_ms));
  Pass(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  ibv_qp_init_attr attributes{};
  attributes.cap = {1, 1, 1, 1, 0};
  attributes.qp_type = IBV_QPT_UD;
  attributes.send_cq = attributes.recv_cq = MAKE(ibv_create_cq(id->verbs, 2, nullptr, nullptr, 0));
  DO(rdma_create_qp(id, id->pd, &attributes));
  DO(rdma_join_multicast(id, group, nullptr));
  Pass(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
  DO(rdma_leave_multicast(id, group));
  rdma_destroy_qp(id);
  DO(ibv_destroy_cq(attributes.send_cq));
  DO(rdma_destroy_id(id));
}

// Finds a function that rdma-core 60 added. Older headers do not declare it.
template <class Function>
Function Find(const char* name) {
  void* const found = dlvsym(RTLD_DEFAULT, name, "RDMACM_1.4");
  if (found == nullptr) Stop(name, ENOSYS);
  return reinterpret_cast<Function>(found);
}

// The library writes the event of a lookup. The program writes an event of its own.
void WriteEvents(rdma_event_channel* channel) {
  constexpr auto kAddrinfoResolved = static_cast<rdma_cm_event_type>(16);
  constexpr auto kUser = static_cast<rdma_cm_event_type>(18);
  const auto resolve = Find<int (*)(rdma_cm_id*, const char*, const char*, const rdma_addrinfo*)>(
      "rdma_resolve_addrinfo");
  const auto write =
      Find<int (*)(rdma_cm_id*, rdma_cm_event_type, int, uint64_t)>("rdma_write_cm_event");
  rdma_cm_id* id = nullptr;
  DO(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP));
  rdma_addrinfo hints{};
  hints.ai_flags = RAI_NUMERICHOST;
  hints.ai_port_space = RDMA_PS_TCP;
  DO(resolve(id, "127.0.0.1", "7471", &hints));
  Pass(channel, kAddrinfoResolved);
  DO(write(id, kUser, 3, 4));
  Pass(channel, kUser);
  DO(rdma_destroy_id(id));
}

// A notification of an established connection fails with EISCONN.
void NotifyEstablished(rdma_cm_id* id) {
  int error;
  do {
    error = rdma_notify(id, IBV_EVENT_COMM_EST) == 0 ? 0 : errno;
  } while (error == EINTR || error == EAGAIN);
  printf("rdma_notify: %s\n", strerror(error));
}

// Leaves more events unread on a channel than its ring holds (Verbs::kChannelSlots, 1024), then
// reads all.
void OverflowChannel() {
  constexpr int kEvents = 1100;
  ibv_device** const list = MAKE(ibv_get_device_list(nullptr));
  ibv_context* const context = MAKE(ibv_open_device(list[0]));
  ibv_pd* const pd = MAKE(ibv_alloc_pd(context));
  ibv_comp_channel* const channel = MAKE(ibv_create_comp_channel(context));
  ibv_cq* const cq = MAKE(ibv_create_cq(context, 4, nullptr, channel, 0));
  ibv_qp* const qp = MakeQp(IBV_QPT_RC, pd, cq);
  ibv_qp_attr failed{};
  failed.qp_state = IBV_QPS_ERR;
  DO(ibv_modify_qp(qp, &failed, IBV_QP_STATE));
  for (int i = 0; i < kEvents; i++) {
    DO(ibv_req_notify_cq(cq, 0));
    ibv_send_wr request{}, *bad = nullptr;
    DO(ibv_post_send(qp, &request, &bad));  // a QP in ERR flushes it
    ibv_wc wc{};
    while (ibv_poll_cq(cq, 1, &wc) == 0) {
    }
  }
  for (int i = 0; i < kEvents; i++) {
    ibv_cq* from = nullptr;
    void* unused = nullptr;
    AwaitReadable("completion event", channel->fd);
    DO(ibv_get_cq_event(channel, &from, &unused));
    if (from != cq) Stop("ibv_get_cq_event: another queue", EINVAL);
  }
  ibv_ack_cq_events(cq, kEvents);
  printf("%d completion events\n", kEvents);
  DO(ibv_destroy_qp(qp));
  DO(ibv_destroy_cq(cq));
  DO(ibv_destroy_comp_channel(channel));
  DO(ibv_dealloc_pd(pd));
  DO(ibv_close_device(context));
  ibv_free_device_list(list);
}

// The passive side rejects the first request and accepts the second.
void Run(const sockaddr_in& address) {
  rdma_event_channel* const active = MAKE(rdma_create_event_channel());
  rdma_event_channel* const passive = MAKE(rdma_create_event_channel());
  rdma_cm_id* listener = nullptr;
  auto* const name = reinterpret_cast<sockaddr*>(const_cast<sockaddr_in*>(&address));
  DO(rdma_create_id(passive, &listener, nullptr, RDMA_PS_TCP));
  DO(rdma_bind_addr(listener, name));
  DO(rdma_listen(listener, 4));
  UseObjects(listener->verbs, listener->pd);
  UseGroup(active, name);
  WriteEvents(active);

  static Side server, client;
  ibv_srq* srq = nullptr;
  for (const bool accepts : {false, true}) {
    DO(rdma_create_id(active, &client.id, nullptr, RDMA_PS_TCP));
    uint8_t tos = 4;
    DO(rdma_set_option(client.id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof tos));
    DO(rdma_resolve_addr(client.id, nullptr, name, kTimeout_ms));
    Pass(active, RDMA_CM_EVENT_ADDR_RESOLVED);
    DO(rdma_resolve_route(client.id, kTimeout_ms));
    Pass(active, RDMA_CM_EVENT_ROUTE_RESOLVED);
    client.Build(nullptr);
    rdma_conn_param parameters{};
    parameters.retry_count = parameters.rnr_retry_count = 7;
    DO(rdma_connect(client.id, &parameters));
    rdma_cm_event* const request = Expect(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
    server.id = request->id;
    rdma_ack_cm_event(request);
    if (!accepts) {
      DO(rdma_reject(server.id, nullptr, 0));
      Pass(active, RDMA_CM_EVENT_REJECTED);
      DO(rdma_destroy_id(server.id));
      client.Destroy();
      DO(rdma_destroy_id(client.id));
      continue;
    }
    ibv_srq_init_attr shared{};
    shared.attr = {4, 1, 0};
    srq = MAKE(ibv_create_srq(server.id->pd, &shared));
    server.Build(srq);
    server.Receive();
    ibv_srq_attr limit{};
    limit.srq_limit = 1;
    DO(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
    DO(ibv_query_srq(srq, &limit));
    DO(rdma_accept(server.id, &parameters));
    Pass(active, RDMA_CM_EVENT_ESTABLISHED);
    Pass(passive, RDMA_CM_EVENT_ESTABLISHED);
  }
  NotifyEstablished(client.id);
  strcpy(client.bytes, "through");
  client.Receive();
  client.Send();
  client.Complete("sent");
  server.Complete("received");
  ExpectAsync(server.id->verbs, IBV_EVENT_SRQ_LIMIT_REACHED);
  printf("'%s'\n", server.bytes);
  rdma_event_channel* const other = MAKE(rdma_create_event_channel());
  DO(rdma_migrate_id(client.id, other));
  DO(rdma_disconnect(client.id));
  Pass(passive, RDMA_CM_EVENT_DISCONNECTED);
  DO(rdma_disconnect(server.id));
  Pass(other, RDMA_CM_EVENT_DISCONNECTED);
  client.Destroy();
  server.Destroy();
  DO(ibv_destroy_srq(srq));
  DO(rdma_destroy_id(client.id));
  DO(rdma_destroy_id(server.id));
  DO(rdma_destroy_id(listener));
  for (rdma_event_channel* const each : {active, passive, other}) rdma_destroy_event_channel(each);
}

}  // namespace

// usage: retrier ADDRESS [overflow]
int main(int argc, char** argv) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kPort);
  if (argc < 2 || inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) return 2;
  if (argc == 3) {
    OverflowChannel();
  } else {
    Run(address);
  }
  // Opens and closes a device of the list. Its protection domain is the program's own.
  int count = 0;
  ibv_device** const list = MAKE(ibv_get_device_list(&count));
  ibv_context* const context = MAKE(ibv_open_device(list[0]));
  ibv_pd* const pd = MAKE(ibv_alloc_pd(context));
  DO(ibv_dealloc_pd(pd));
  DO(ibv_close_device(context));
  ibv_free_device_list(list);
  puts("done");
}
