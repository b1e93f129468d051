#include "usage.h"

#include <arpa/inet.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include <cstdint>

const char* g_address;

// ---- verbs

Verbs::Verbs(const Setup& wanted) : setup(wanted) {
  ibv_device** const list = ibv_get_device_list(nullptr);
  CHECK(list != nullptr && list[0] != nullptr);
  context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  CHECK(context != nullptr);
  CHECK((pd = ibv_alloc_pd(context)) != nullptr);
  if (setup.has_channel) CHECK((channel = ibv_create_comp_channel(context)) != nullptr);
  CHECK((cq = ibv_create_cq(context, setup.cqe, nullptr, channel, 0)) != nullptr);
  if (setup.has_srq) {
    ibv_srq_init_attr attr{};
    attr.attr.max_wr = 4;
    attr.attr.max_sge = 1;
    CHECK((srq = ibv_create_srq(pd, &attr)) != nullptr);
  }
  CHECK((mr = ibv_reg_mr(pd, buffer, sizeof buffer,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                             IBV_ACCESS_REMOTE_ATOMIC)) != nullptr);
}

void Verbs::MakeQp() {
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.srq = srq;
  init.qp_type = setup.type;
  init.cap = {setup.max_send_wr, srq != nullptr ? 0 : setup.max_recv_wr, 1, srq != nullptr ? 0u : 1,
              16};
  CHECK((qp = ibv_create_qp(pd, &init)) != nullptr);
  cap = init.cap;
}

void Verbs::ToInit() {
  if (qp == nullptr) MakeQp();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = 0x11;
  attr.qp_access_flags =
      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  const int rights = setup.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | rights) == 0);
}

void FillRtr(const Verbs& verbs, ibv_qp_attr& attr) {
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = verbs.peer != 0 ? verbs.peer : verbs.qp->qp_num;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.hop_limit = 64;
  const uint32_t wanted = inet_addr(g_address);
  for (int index = 0; index < 64; index++) {
    ibv_gid_entry entry{};
    if (ibv_query_gid_ex(verbs.context, 1, static_cast<uint32_t>(index), &entry, 0) != 0) continue;
    if (entry.gid_type != IBV_GID_TYPE_ROCE_V2 || memcmp(entry.gid.raw + 12, &wanted, 4) != 0) {
      continue;
    }
    attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(index);
    attr.ah_attr.grh.dgid = entry.gid;
  }
}

void Verbs::ToRtr() {
  ibv_qp_attr attr{};
  FillRtr(*this, attr);
  int mask = IBV_QP_STATE;
  if (setup.type != IBV_QPT_UD) {
    mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  }
  if (setup.type == IBV_QPT_RC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  CHECK(ibv_modify_qp(qp, &attr, mask) == 0);
}

void Verbs::ToRts() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.max_rd_atomic = setup.max_rd_atomic;
  int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (setup.type == IBV_QPT_RC) {
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  CHECK(ibv_modify_qp(qp, &attr, mask) == 0);
}

ibv_sge Verbs::Sge(uint32_t length) const {
  return {reinterpret_cast<uint64_t>(buffer), length, mr->lkey};
}

ibv_send_wr Verbs::Write(ibv_sge* sge) const {
  ibv_send_wr wr{};
  wr.sg_list = sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(buffer) + 2048;
  wr.wr.rdma.rkey = mr->rkey;
  return wr;
}

int Verbs::Post(ibv_send_wr wr) const {
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp, &wr, &bad);
}

int Verbs::PostReceive(ibv_sge sge) const {
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  return ibv_post_recv(qp, &wr, &bad);
}

ibv_wc Verbs::Poll() const {
  ibv_wc wc{};
  int count = 0;
  while ((count = ibv_poll_cq(cq, 1, &wc)) == 0) sched_yield();
  CHECK(count == 1);
  return wc;
}

void Verbs::Destroy() {
  if (qp != nullptr) CHECK(ibv_destroy_qp(qp) == 0);
  if (srq != nullptr) CHECK(ibv_destroy_srq(srq) == 0);
  if (mr != nullptr) CHECK(ibv_dereg_mr(mr) == 0);
  if (cq != nullptr) CHECK(ibv_destroy_cq(cq) == 0);
  if (channel != nullptr) CHECK(ibv_destroy_comp_channel(channel) == 0);
  if (pd != nullptr) CHECK(ibv_dealloc_pd(pd) == 0);
  if (context != nullptr) CHECK(ibv_close_device(context) == 0);
}

// ---- rdma_cm

rdma_cm_event* Side::Take(rdma_cm_event_type type) const {
  rdma_cm_event* event = nullptr;
  CHECK(rdma_get_cm_event(channel, &event) == 0);
  if (event->event != type) {
    fprintf(stderr, "%s instead of %s\n", rdma_event_str(event->event), rdma_event_str(type));
    exit(3);
  }
  return event;
}

void Side::Await(rdma_cm_event_type type) const { CHECK(rdma_ack_cm_event(Take(type)) == 0); }

void Side::MakeQp() {
  CHECK((pd = ibv_alloc_pd(id->verbs)) != nullptr);
  CHECK((cq = ibv_create_cq(id->verbs, 16, nullptr, nullptr, 0)) != nullptr);
  CHECK((mr = ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE)) != nullptr);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {4, 4, 1, 1, 0};
  CHECK(rdma_create_qp(id, pd, &init) == 0);
}

void Side::PostReceive() const {
  ibv_sge sge{reinterpret_cast<uint64_t>(buffer), 16, mr->lkey};
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  CHECK(ibv_post_recv(id->qp, &wr, &bad) == 0);
}

void Side::Resolve(uint16_t port) const {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = port;
  address.sin_addr.s_addr = inet_addr(g_address);
  CHECK(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&address), 2000) == 0);
  Await(RDMA_CM_EVENT_ADDR_RESOLVED);
  CHECK(rdma_resolve_route(id, 2000) == 0);
  Await(RDMA_CM_EVENT_ROUTE_RESOLVED);
}

void Side::Destroy() {
  if (id != nullptr && id->qp != nullptr) rdma_destroy_qp(id);
  if (id != nullptr) CHECK(rdma_destroy_id(id) == 0);
  if (mr != nullptr) CHECK(ibv_dereg_mr(mr) == 0);
  if (cq != nullptr) CHECK(ibv_destroy_cq(cq) == 0);
  if (pd != nullptr) CHECK(ibv_dealloc_pd(pd) == 0);
  if (channel != nullptr) rdma_destroy_event_channel(channel);
}

rdma_conn_param Parameters() {
  rdma_conn_param parameters{};
  parameters.retry_count = parameters.rnr_retry_count = 7;
  parameters.responder_resources = parameters.initiator_depth = 1;
  return parameters;
}

Pair::Pair() {
  CHECK((active.channel = rdma_create_event_channel()) != nullptr);
  CHECK((passive.channel = rdma_create_event_channel()) != nullptr);
  CHECK(rdma_create_id(passive.channel, &listener, nullptr, RDMA_PS_TCP) == 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = inet_addr(g_address);
  CHECK(rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&address)) == 0);
  CHECK(rdma_listen(listener, 4) == 0);
  port = rdma_get_src_port(listener);
  CHECK(rdma_create_id(active.channel, &active.id, nullptr, RDMA_PS_TCP) == 0);
}

void Pair::Request(rdma_conn_param parameters) {
  active.Resolve(port);
  active.MakeQp();
  CHECK(rdma_connect(active.id, &parameters) == 0);
}

void Pair::TakeRequest(bool posts) {
  rdma_cm_event* const event = passive.Take(RDMA_CM_EVENT_CONNECT_REQUEST);
  passive.id = event->id;
  CHECK(rdma_ack_cm_event(event) == 0);
  passive.MakeQp();
  if (posts) passive.PostReceive();
}

void Pair::Accept(rdma_conn_param parameters) { CHECK(rdma_accept(passive.id, &parameters) == 0); }

void Pair::AwaitEstablished() {
  active.Await(RDMA_CM_EVENT_ESTABLISHED);
  passive.Await(RDMA_CM_EVENT_ESTABLISHED);
}

void Pair::Disconnect() {
  CHECK(rdma_disconnect(active.id) == 0);
  passive.Await(RDMA_CM_EVENT_DISCONNECTED);
  CHECK(rdma_disconnect(passive.id) == 0);
  active.Await(RDMA_CM_EVENT_DISCONNECTED);
}

void Pair::Destroy() {
  active.Destroy();
  if (listener != nullptr) CHECK(rdma_destroy_id(listener) == 0);
  passive.Destroy();
}
