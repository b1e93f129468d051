#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <sstream>
#include <stdexcept>

#include "tests/contract/support/side.h"
#include "tests/contract/support/state.h"

namespace rdma_contract {
namespace {

using Clock = std::chrono::steady_clock;

struct AddressText {
  char text[64];
};
AddressText TextOf(const std::string& address) {
  AddressText copy{};
  strncpy(copy.text, address.c_str(), sizeof copy.text - 1);
  return copy;
}

int OpenStep(State& state, const int&) {
  if (state.context != nullptr) return 0;
  state.context = OpenTestDevice();
  if (state.context == nullptr) return ENODEV;
  state.pd = ibv_alloc_pd(state.context);
  return state.pd ? 0 : errno;
}

void Check(int error, const char* what) {
  if (error != 0) throw std::runtime_error(std::string(what) + ": " + strerror(error));
}

ibv_cq* MakeCq(State& state, int cqe, bool with_channel) {
  ibv_comp_channel* const channel = with_channel ? ibv_create_comp_channel(state.context) : nullptr;
  if (with_channel && channel == nullptr) return nullptr;
  return ibv_create_cq(state.context, cqe, nullptr, channel, 0);
}

int CreateQpStep(State& state, const QpSpec& spec) {
  QueuePair pair;
  pair.send_cq = MakeCq(state, spec.cqe, spec.sleeps);
  if (pair.send_cq == nullptr) return -errno;
  pair.receive_cq =
      spec.one_cq ? pair.send_cq
                  : MakeCq(state, spec.receive_cqe ? spec.receive_cqe : spec.cqe, spec.sleeps);
  if (pair.receive_cq == nullptr) return -errno;
  ibv_qp_init_attr_ex init{};
  init.send_cq = pair.send_cq;
  init.recv_cq = pair.receive_cq;
  init.qp_type = spec.type;
  init.sq_sig_all = spec.signal_all;
  init.cap = {spec.depth, spec.srq < 0 ? spec.depth : 0, spec.pieces, spec.pieces,
              spec.inline_bytes};
  if (spec.srq >= 0) init.srq = state.srqs[static_cast<size_t>(spec.srq)];
  if (spec.extended_ops != 0) {
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.pd = state.pd;
    init.send_ops_flags = spec.extended_ops;
    pair.qp = ibv_create_qp_ex(state.context, &init);
  } else {
    pair.qp = ibv_create_qp(state.pd, reinterpret_cast<ibv_qp_init_attr*>(&init));
  }
  if (pair.qp == nullptr) return -errno;
  pair.psn = 0xffff00 + static_cast<uint32_t>(state.qps.size());  // close to the 24-bit wrap
  state.qps.push_back(pair);
  return static_cast<int>(state.qps.size()) - 1;
}

struct SrqSpec {
  uint32_t depth, pieces;
};
int CreateSrqStep(State& state, const SrqSpec& spec) {
  ibv_srq_init_attr init{};
  init.attr = {spec.depth, spec.pieces, 0};
  ibv_srq* srq = ibv_create_srq(state.pd, &init);
  if (srq == nullptr) return -errno;
  state.srqs.push_back(srq);
  return static_cast<int>(state.srqs.size()) - 1;
}

struct AddressQuery {
  int qp;
  AddressText address;
};
QpAddress AddressStep(State& state, const AddressQuery& query) {
  const QueuePair& pair = state.qps[static_cast<size_t>(query.qp)];
  QpAddress address{};
  address.qpn = pair.qp->qp_num;
  address.psn = pair.psn;
  address.gid_index = GidIndexOf(state.context, query.address.text);
  address.gid = GidOf(query.address.text);
  ibv_port_attr port{};
  if (ibv_query_port(state.context, 1, &port) == 0) address.lid = port.lid;
  return address;
}

ibv_ah_attr PathTo(const QpAddress& peer, int gid_index) {
  ibv_ah_attr path{};
  path.port_num = 1;
  path.dlid = peer.lid;
  if (peer.lid != 0) return path;
  path.is_global = 1;
  path.grh.dgid = peer.gid;
  path.grh.sgid_index = static_cast<uint8_t>(gid_index);
  path.grh.hop_limit = 64;
  return path;
}

struct ConnectOrder {
  int qp;
  PathSpec path;
  QpAddress peer;
  AddressText own;
};
int ConnectStep(State& state, const ConnectOrder& order) {
  const QueuePair& pair = state.qps[static_cast<size_t>(order.qp)];
  const ibv_qp_type type = pair.qp->qp_type;
  const bool rc = type == IBV_QPT_RC;
  const bool ud = type == IBV_QPT_UD;
  const PathSpec& path = order.path;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = path.qkey;
  attr.qp_access_flags = static_cast<unsigned>(path.access);
  int result = ibv_modify_qp(
      pair.qp, &attr,
      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
  if (result != 0 || path.up_to == IBV_QPS_INIT) return result;
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = path.mtu;
  attr.dest_qp_num = order.peer.qpn;
  attr.rq_psn = order.peer.psn;
  attr.max_dest_rd_atomic = path.reads;
  attr.min_rnr_timer = path.min_rnr_timer;
  attr.ah_attr = PathTo(order.peer, GidIndexOf(state.context, order.own.text));
  int mask = IBV_QP_STATE;
  if (!ud) mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (rc) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  result = ibv_modify_qp(pair.qp, &attr, mask);
  if (result != 0 || path.up_to == IBV_QPS_RTR) return result;
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = pair.psn;
  attr.timeout = path.timeout;
  attr.retry_cnt = path.retry;
  attr.rnr_retry = path.rnr_retry;
  attr.max_rd_atomic = path.reads;
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (rc) mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  return ibv_modify_qp(pair.qp, &attr, mask);
}

struct ModifyOrder {
  int qp;
  ibv_qp_attr attributes;
  int mask;
};
int ModifyStep(State& state, const ModifyOrder& order) {
  ibv_qp_attr attributes = order.attributes;
  return ibv_modify_qp(state.qps[static_cast<size_t>(order.qp)].qp, &attributes, order.mask);
}

int StateStep(State& state, const int& qp) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  const int result =
      ibv_query_qp(state.qps[static_cast<size_t>(qp)].qp, &attr, IBV_QP_STATE, &init);
  return result != 0 ? -result : static_cast<int>(attr.qp_state);
}

int DestroyQpStep(State& state, const int& qp) {
  QueuePair& pair = state.qps[static_cast<size_t>(qp)];
  const int result = ibv_destroy_qp(pair.qp);
  if (result == 0) pair.qp = nullptr;
  return result;
}

struct RegisterOrder {
  uint64_t address;
  size_t bytes;
  int access;
};
Region RegisterStep(State& state, const RegisterOrder& order) {
  ibv_mr* mr = ibv_reg_mr(state.pd, reinterpret_cast<void*>(order.address), order.bytes,
                          static_cast<unsigned>(order.access));
  if (mr == nullptr) return {-1, errno, 0, 0};
  state.mrs.push_back(mr);
  return {static_cast<int>(state.mrs.size()) - 1, 0, mr->lkey, mr->rkey};
}
int DeregisterStep(State& state, const int& region) {
  ibv_mr*& mr = state.mrs[static_cast<size_t>(region)];
  const int result = ibv_dereg_mr(mr);
  if (result == 0) mr = nullptr;
  return result;
}

struct PostOrder {
  int queue;
  WorkRequest request;
};

bool Invalidates(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND_WITH_INV || opcode == IBV_WR_LOCAL_INV;
}
bool IsAtomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

int PostSendStep(State& state, const PostOrder& order) {
  WorkRequest request = order.request;
  ibv_send_wr wr{};
  wr.wr_id = request.wr_id;
  wr.sg_list = request.piece;
  wr.num_sge = request.pieces;
  wr.opcode = request.opcode;
  wr.send_flags = request.flags;
  if (Invalidates(request.opcode))
    wr.invalidate_rkey = request.imm;
  else
    wr.imm_data = htonl(request.imm);
  if (request.ah >= 0) {
    wr.wr.ud.ah = state.ahs[static_cast<size_t>(request.ah)];
    wr.wr.ud.remote_qpn = request.remote_qpn;
    wr.wr.ud.remote_qkey = request.remote_qkey;
  } else if (IsAtomic(request.opcode)) {
    wr.wr.atomic = {request.remote_address, request.compare_add, request.swap, request.rkey};
  } else {
    wr.wr.rdma = {request.remote_address, request.rkey};
  }
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(state.qps[static_cast<size_t>(order.queue)].qp, &wr, &bad);
}

int PostReceiveStep(State& state, const PostOrder& order) {
  WorkRequest request = order.request;
  ibv_recv_wr wr{request.wr_id, nullptr, request.piece, request.pieces};
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(state.qps[static_cast<size_t>(order.queue)].qp, &wr, &bad);
}
int PostSrqReceiveStep(State& state, const PostOrder& order) {
  WorkRequest request = order.request;
  ibv_recv_wr wr{request.wr_id, nullptr, request.piece, request.pieces};
  ibv_recv_wr* bad = nullptr;
  return ibv_post_srq_recv(state.srqs[static_cast<size_t>(order.queue)], &wr, &bad);
}

struct PollOrder {
  int qp;
  Queue queue;
  int limit_ms;
};
// Blocks until the queue has an event. Returns at once if a completion came before the queue was
// armed.
Completion SleepUntilCompletion(ibv_cq* cq) {
  Completion completion;
  for (;;) {
    Check(ibv_req_notify_cq(cq, 0), "arm a CQ");
    const int got = ibv_poll_cq(cq, 1, &completion.wc);
    completion.found = got > 0;
    if (got != 0) return completion;
    ibv_cq* which = nullptr;
    void* context = nullptr;
    Check(ibv_get_cq_event(cq->channel, &which, &context) == 0 ? 0 : errno, "wait for an event");
    ibv_ack_cq_events(which, 1);
  }
}

Completion PollStep(State& state, const PollOrder& order) {
  const QueuePair& pair = state.qps[static_cast<size_t>(order.qp)];
  ibv_cq* cq = order.queue == Queue::kSend ? pair.send_cq : pair.receive_cq;
  const auto until = Clock::now() + std::chrono::milliseconds(order.limit_ms);
  Completion completion;
  for (;;) {
    const int got = ibv_poll_cq(cq, 1, &completion.wc);
    if (got != 0) {
      completion.found = got > 0;
      return completion;
    }
    if (cq->channel != nullptr) return SleepUntilCompletion(cq);
    if (Clock::now() >= until) return completion;
    sched_yield();
  }
}

struct AhOrder {
  QpAddress peer;
  AddressText own;
};
int CreateAhStep(State& state, const AhOrder& order) {
  ibv_ah_attr path = PathTo(order.peer, GidIndexOf(state.context, order.own.text));
  ibv_ah* ah = ibv_create_ah(state.pd, &path);
  if (ah == nullptr) return -errno;
  state.ahs.push_back(ah);
  return static_cast<int>(state.ahs.size()) - 1;
}

int DestroyAhStep(State& state, const int& ah) {
  const int result = ibv_destroy_ah(state.ahs[static_cast<size_t>(ah)]);
  if (result == 0) state.ahs[static_cast<size_t>(ah)] = nullptr;
  return result;
}

struct BindOrder {
  int qp, region;
  uint64_t address;
  size_t bytes;
  int access;
};
uint32_t BindWindowStep(State& state, const BindOrder& order) {
  ibv_mw* mw = ibv_alloc_mw(state.pd, IBV_MW_TYPE_2);
  if (mw == nullptr) return 0;
  state.mws.push_back(mw);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.bind_mw.mw = mw;
  wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  wr.bind_mw.bind_info = {state.mrs[static_cast<size_t>(order.region)], order.address, order.bytes,
                          static_cast<unsigned>(order.access)};
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(state.qps[static_cast<size_t>(order.qp)].qp, &wr, &bad) != 0) return 0;
  const Completion done = PollStep(state, {order.qp, Queue::kSend, kPatience_ms});
  if (!done.found || done.wc.status != IBV_WC_SUCCESS) return 0;
  mw->rkey = wr.bind_mw.rkey;
  return mw->rkey;
}

int AsyncStep(State& state, const int& limit_ms) {
  pollfd waiting{state.context->async_fd, POLLIN, 0};
  if (poll(&waiting, 1, limit_ms) <= 0) return -1;
  ibv_async_event event{};
  if (ibv_get_async_event(state.context, &event) != 0) return -1;
  ibv_ack_async_event(&event);
  return static_cast<int>(event.event_type);
}

}  // namespace

ibv_context* OpenTestDevice() {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  if (devices == nullptr) return nullptr;
  ibv_context* context = nullptr;
  for (int i = 0; i < count && context == nullptr; ++i)
    if (DeviceName() == ibv_get_device_name(devices[i])) context = ibv_open_device(devices[i]);
  ibv_free_device_list(devices);
  return context;
}

int GidIndexOf(ibv_context* context, const std::string& address) {
  const ibv_gid wanted = GidOf(address);
  ibv_port_attr port{};
  if (ibv_query_port(context, 1, &port) != 0) return -1;
  for (int i = 0; i < port.gid_tbl_len; ++i) {
    ibv_gid gid{};
    if (ibv_query_gid(context, 1, i, &gid) == 0 && memcmp(&gid, &wanted, sizeof gid) == 0) return i;
    if (i > 64) break;  // the table is filled from the front
  }
  return -1;
}

Side::Side(Place place)
    : worker_(StartWorker(place)),
      address_(place == Place::kPeersMachine ? RemoteAddress() : LocalAddress()) {}

int Side::Open() { return worker_->Call(&OpenStep, 0); }
int Side::CreateQp(const QpSpec& spec) { return worker_->Call(&CreateQpStep, spec); }
int Side::CreateSrq(uint32_t depth, uint32_t pieces) {
  return worker_->Call(&CreateSrqStep, SrqSpec{depth, pieces});
}
QpAddress Side::AddressOf(int qp) {
  return worker_->Call(&AddressStep, AddressQuery{qp, TextOf(address_)});
}
int Side::Connect(int qp, const PathSpec& path, const QpAddress& peer) {
  return worker_->Call(&ConnectStep, ConnectOrder{qp, path, peer, TextOf(address_)});
}
int Side::Modify(int qp, const ibv_qp_attr& attributes, int mask) {
  return worker_->Call(&ModifyStep, ModifyOrder{qp, attributes, mask});
}
int Side::StateOf(int qp) { return worker_->Call(&StateStep, qp); }
int Side::DestroyQp(int qp) { return worker_->Call(&DestroyQpStep, qp); }
Region Side::Register(const Buffer& buffer, int access) {
  return RegisterRange(buffer.address(), buffer.size, access);
}
Region Side::RegisterRange(uint64_t address, size_t bytes, int access) {
  return worker_->Call(&RegisterStep, RegisterOrder{address, bytes, access});
}
int Side::Deregister(int region) { return worker_->Call(&DeregisterStep, region); }
int Side::PostSend(int qp, const WorkRequest& request) {
  return worker_->Call(&PostSendStep, PostOrder{qp, request});
}
int Side::PostReceive(int qp, const WorkRequest& request) {
  return worker_->Call(&PostReceiveStep, PostOrder{qp, request});
}
int Side::PostSrqReceive(int srq, const WorkRequest& request) {
  return worker_->Call(&PostSrqReceiveStep, PostOrder{srq, request});
}
Completion Side::Poll(int qp, Queue queue, int limit_ms) {
  return worker_->Call(&PollStep, PollOrder{qp, queue, limit_ms});
}
int Side::CreateAh(const QpAddress& peer) {
  return worker_->Call(&CreateAhStep, AhOrder{peer, TextOf(address_)});
}
int Side::DestroyAh(int ah) { return worker_->Call(&DestroyAhStep, ah); }
uint32_t Side::BindWindow(int qp, int region, const Buffer& buffer, int access) {
  return worker_->Call(&BindWindowStep,
                       BindOrder{qp, region, buffer.address(), buffer.size, access});
}
int Side::NextAsyncEvent(int limit_ms) { return worker_->Call(&AsyncStep, limit_ms); }

Pair ConnectPair(Side& local, Side& remote, const QpSpec& spec, const PathSpec& path) {
  Check(local.Open(), "open the local device");
  Check(remote.Open(), "open the remote device");
  Pair pair{};
  QpSpec unshared = spec;
  unshared.srq = -1;  // an SRQ belongs to the remote side
  pair.local = local.CreateQp(unshared);
  Check(std::max(-pair.local, 0), "create the local QP");
  pair.remote = remote.CreateQp(spec);
  Check(std::max(-pair.remote, 0), "create the remote QP");
  pair.local_address = local.AddressOf(pair.local);
  pair.remote_address = remote.AddressOf(pair.remote);
  Check(remote.Connect(pair.remote, path, pair.local_address), "connect the remote QP");
  Check(local.Connect(pair.local, path, pair.remote_address), "connect the local QP");
  return pair;
}

void AddPieces(WorkRequest& request, const Buffer& buffer, uint32_t lkey,
               const std::vector<uint32_t>& lengths) {
  uint64_t address = buffer.address();
  for (uint32_t length : lengths) {
    request.Add(address, length, lkey);
    address += length;
  }
}

WorkRequest ReceiveInto(uint64_t wr_id, const Buffer& to, const Region& region) {
  WorkRequest request{.wr_id = wr_id};
  return request.Add(to.address(), static_cast<uint32_t>(to.size), region.lkey);
}
WorkRequest SendOf(uint64_t wr_id, const Buffer& from, const Region& region) {
  return ReceiveInto(wr_id, from, region);
}
WorkRequest WriteTo(uint64_t wr_id, const Buffer& from, const Region& region, uint64_t to,
                    uint32_t rkey) {
  WorkRequest request = ReceiveInto(wr_id, from, region);
  request.opcode = IBV_WR_RDMA_WRITE;
  request.remote_address = to;
  request.rkey = rkey;
  return request;
}
WorkRequest ReadFrom(uint64_t wr_id, const Buffer& into, const Region& region, uint64_t from,
                     uint32_t rkey) {
  WorkRequest request = WriteTo(wr_id, into, region, from, rkey);
  request.opcode = IBV_WR_RDMA_READ;
  return request;
}

std::string Describe(const Completion& completion) {
  if (!completion.found) return "no completion";
  std::ostringstream text;
  text << "wr_id " << completion.wc.wr_id << ", status " << ibv_wc_status_str(completion.wc.status)
       << ", opcode " << completion.wc.opcode << ", " << completion.wc.byte_len << " bytes, flags "
       << completion.wc.wc_flags;
  return text.str();
}

}  // namespace rdma_contract
