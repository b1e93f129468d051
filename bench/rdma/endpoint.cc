#include "bench/rdma/endpoint.h"

#include <arpa/inet.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace rdma_bench {
namespace {

constexpr int kResolve_ms = 5000;
constexpr uint32_t kReceiveList = 16;
// rdma_cm leaves 0, which is the longest time (655 ms). The value 1 means 0.01 ms. A late receiver
// then costs a time slice, and not a configured wait.
constexpr uint8_t kMinRnrTimer = 1;

uint32_t ReceiveDepth(unsigned qps) { return std::min(kMostReceives, kReceivesInAll / qps); }

void WaitAndAck(rdma_event_channel* channel, rdma_cm_event_type expected) {
  ExpectEvent(channel, expected);
}

void SetRnrTimer(ibv_qp* qp) {
  ibv_qp_attr attributes{};
  attributes.min_rnr_timer = kMinRnrTimer;
  const int error = ibv_modify_qp(qp, &attributes, IBV_QP_MIN_RNR_TIMER);
  errno = error;
  Require(error == 0, "ibv_modify_qp(IBV_QP_MIN_RNR_TIMER)");
}

// The function is looked up, because libraries older than rdma-core 65 lack it. The memory exists
// until the process ends.
std::unique_ptr<Buffer> AllocBuf(ibv_pd* pd, size_t bytes) {
  const auto alloc_buf = reinterpret_cast<void* (*)(ibv_pd*, size_t, void**)>(
      dlvsym(RTLD_DEFAULT, "ibv_alloc_buf", "IBVERBS_1.17"));
  if (alloc_buf == nullptr) throw Failure("libibverbs.so.1 is older than rdma-core 65");
  void* handle = nullptr;
  void* const memory = alloc_buf(pd, bytes, &handle);
  Require(memory != nullptr, "ibv_alloc_buf");
  std::memset(memory, 1, bytes);
  return std::make_unique<Buffer>(static_cast<std::byte*>(memory), bytes);
}

}  // namespace

sockaddr_in Ipv4Address(const std::string& text, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (inet_pton(AF_INET, text.c_str(), &address.sin_addr) != 1) {
    throw Failure("not an IPv4 address: " + text);
  }
  return address;
}

rdma_conn_param ConnectionParameters() {
  rdma_conn_param parameters{};
  parameters.responder_resources = kReadsInFlight;
  parameters.initiator_depth = kReadsInFlight;
  parameters.retry_count = 7;
  parameters.rnr_retry_count = 7;
  return parameters;
}

std::unique_ptr<rdma_cm_event, decltype(&rdma_ack_cm_event)> ExpectEvent(
    rdma_event_channel* channel, rdma_cm_event_type expected) {
  rdma_cm_event* event = nullptr;
  Require(rdma_get_cm_event(channel, &event) == 0, "rdma_get_cm_event");
  std::unique_ptr<rdma_cm_event, decltype(&rdma_ack_cm_event)> owned(event, &rdma_ack_cm_event);
  if (event->event != expected) {
    throw Failure(std::string("expected ") + rdma_event_str(expected) + ", got " +
                  rdma_event_str(event->event) + ", status " + std::to_string(event->status));
  }
  return owned;
}

Endpoint::Endpoint(const Options& options) : address_(Ipv4Address(options.address, 0)) {
  channel_ = rdma_create_event_channel();
  Require(channel_ != nullptr, "rdma_create_event_channel; is this run under `rdmaemu run`?");
  own_id_ = NewId();
  Require(rdma_bind_addr(own_id_, reinterpret_cast<sockaddr*>(&address_)) == 0,
          "rdma_bind_addr to " + options.address);
  pd_ = ibv_alloc_pd(own_id_->verbs);
  Require(pd_ != nullptr, "ibv_alloc_pd");
  buffer_ = options.alloc_buf ? AllocBuf(pd_, options.buffer_bytes())
                              : std::make_unique<Buffer>(options.buffer_bytes(), options.pages());
  mr_ = ibv_reg_mr(pd_, buffer_->data(), buffer_->size(),
                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  Require(mr_ != nullptr, "ibv_reg_mr");
  completion_channel_ = ibv_create_comp_channel(own_id_->verbs);
  Require(completion_channel_ != nullptr, "ibv_create_comp_channel");
  cq_ = ibv_create_cq(own_id_->verbs, kCqEntries, nullptr, completion_channel_, 0);
  Require(cq_ != nullptr, "ibv_create_cq");
}

Endpoint::~Endpoint() {
  DestroyConnections();
  ibv_destroy_cq(cq_);
  ibv_destroy_comp_channel(completion_channel_);
  ibv_dereg_mr(mr_);
  ibv_dealloc_pd(pd_);
  rdma_destroy_id(own_id_);
  rdma_destroy_event_channel(channel_);
}

rdma_cm_id* Endpoint::NewId() {
  rdma_cm_id* id = nullptr;
  Require(rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
  return id;
}

void Endpoint::CreateQp(rdma_cm_id* id, uint32_t send_depth, uint32_t receive_depth) {
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq_;
  init.qp_type = IBV_QPT_RC;
  init.cap = {send_depth, receive_depth, 1, 1, kInlineBytes};
  Require(rdma_create_qp(id, pd_, &init) == 0, "rdma_create_qp");
}

void Endpoint::Listen() { Require(rdma_listen(own_id_, 64) == 0, "rdma_listen"); }

void Endpoint::Accept(unsigned qps) {
  while (ids_.size() < qps) {
    rdma_cm_id* const id = ExpectEvent(channel_, RDMA_CM_EVENT_CONNECT_REQUEST)->id;
    ids_.push_back(id);
    CreateQp(id, kSendDepth, ReceiveDepth(qps));
    rdma_conn_param parameters = ConnectionParameters();
    Require(rdma_accept(id, &parameters) == 0, "rdma_accept");
    WaitAndAck(channel_, RDMA_CM_EVENT_ESTABLISHED);
    SetRnrTimer(id->qp);
  }
  receives_used_.assign(qps, 0);
}

void Endpoint::Connect(const std::string& peer, uint16_t port, unsigned qps) {
  sockaddr_in destination = Ipv4Address(peer, port);
  while (ids_.size() < qps) {
    rdma_cm_id* const id = NewId();
    ids_.push_back(id);
    sockaddr_in source = address_;
    Require(rdma_resolve_addr(id, reinterpret_cast<sockaddr*>(&source),
                              reinterpret_cast<sockaddr*>(&destination), kResolve_ms) == 0,
            "rdma_resolve_addr");
    WaitAndAck(channel_, RDMA_CM_EVENT_ADDR_RESOLVED);
    Require(rdma_resolve_route(id, kResolve_ms) == 0, "rdma_resolve_route");
    WaitAndAck(channel_, RDMA_CM_EVENT_ROUTE_RESOLVED);
    CreateQp(id, kSendDepth, ReceiveDepth(qps));
    rdma_conn_param parameters = ConnectionParameters();
    Require(rdma_connect(id, &parameters) == 0, "rdma_connect");
    WaitAndAck(channel_, RDMA_CM_EVENT_ESTABLISHED);
    SetRnrTimer(id->qp);
  }
  receives_used_.assign(qps, 0);
}

void Endpoint::Disconnect() {
  for (rdma_cm_id* const id : ids_) Require(rdma_disconnect(id) == 0, "rdma_disconnect");
  Disconnected();
}

void Endpoint::Disconnected() {
  for (size_t i = 0; i < ids_.size(); i++) WaitAndAck(channel_, RDMA_CM_EVENT_DISCONNECTED);
  DestroyConnections();
}

void Endpoint::DestroyConnections() {
  for (rdma_cm_id* const id : ids_) {
    if (id->qp != nullptr) rdma_destroy_qp(id);
    rdma_destroy_id(id);
  }
  ids_.clear();
  // Discard completions that were flushed before their QP was destroyed.
  std::array<ibv_wc, 64> flushed;
  while (ibv_poll_cq(cq_, flushed.size(), flushed.data()) > 0) {
  }
}

void Endpoint::PostReceives(size_t message_bytes) {
  receive_bytes_ = message_bytes;
  receive_walk_ = Walk(buffer_->size(), message_bytes);
  const uint32_t depth = ReceiveDepth(qps());
  for (unsigned qp = 0; qp < qps(); qp++) {
    for (uint32_t done = 0; done < depth; done += kReceiveList) {
      PostReceiveList(qp, kReceiveList);
    }
  }
}

void Endpoint::ReceiveUsed(unsigned qp) {
  if (++receives_used_[qp] < kReceiveList) return;
  PostReceiveList(qp, kReceiveList);
  receives_used_[qp] = 0;
}

void Endpoint::PostReceiveList(unsigned qp_index, uint32_t count) {
  std::array<ibv_sge, kReceiveList> pieces;
  std::array<ibv_recv_wr, kReceiveList> requests;
  for (uint32_t i = 0; i < count; i++) {
    pieces[i] = {reinterpret_cast<uint64_t>(buffer_->data() + receive_walk_.Next()),
                 static_cast<uint32_t>(receive_bytes_), mr_->lkey};
    requests[i] = {qp_index, i + 1 < count ? &requests[i + 1] : nullptr, &pieces[i], 1};
  }
  ibv_recv_wr* bad = nullptr;
  errno = ibv_post_recv(qp(qp_index), requests.data(), &bad);
  Require(errno == 0, "ibv_post_recv");
}

unsigned Endpoint::NextCompletions(std::span<ibv_wc> completions, bool block_on_events) {
  bool armed = false;
  for (;;) {
    const int got = ibv_poll_cq(cq_, static_cast<int>(completions.size()), completions.data());
    if (got < 0) throw Failure("ibv_poll_cq failed");
    for (int i = 0; i < got; i++) {
      const ibv_wc& one = completions[static_cast<size_t>(i)];
      if (one.status != IBV_WC_SUCCESS) {
        throw Failure(std::string("a completion failed: ") + ibv_wc_status_str(one.status));
      }
    }
    if (got > 0) return static_cast<unsigned>(got);
    if (!block_on_events) continue;
    if (!armed) {
      // Arm first and poll again, so that no completion is missed.
      Require(ibv_req_notify_cq(cq_, 0) == 0, "ibv_req_notify_cq");
      armed = true;
      continue;
    }
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    Require(ibv_get_cq_event(completion_channel_, &cq, &context) == 0, "ibv_get_cq_event");
    ibv_ack_cq_events(cq, 1);
    armed = false;
  }
}

}  // namespace rdma_bench
