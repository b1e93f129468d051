#include "endpoint.h"

namespace kv {

Endpoint::Endpoint(Id id, size_t receive_bytes, size_t extra_bytes)
    : id_(std::move(id)),
      receive_bytes_(receive_bytes),
      buffer_(kReceives * receive_bytes + extra_bytes) {
  ibv_context* const device = id_->verbs;
  channel_.reset(Check(ibv_create_comp_channel(device), "ibv_create_comp_channel"));
  queue_.reset(Check(ibv_create_cq(device, kReceives + kSends, nullptr, channel_.get(), 0),
                     "ibv_create_cq"));
  memory_.reset(Check(ibv_reg_mr(id_->pd, buffer_.data(), buffer_.size(),
                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
                      "ibv_reg_mr"));
  ibv_qp_init_attr attributes = {};
  attributes.send_cq = attributes.recv_cq = queue_.get();
  attributes.cap.max_send_wr = kSends;
  attributes.cap.max_recv_wr = kReceives;
  attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
  attributes.qp_type = IBV_QPT_RC;
  Check(rdma_create_qp(id_.get(), id_->pd, &attributes), "rdma_create_qp");
  queue_pair_.reset(id_.get());
  for (uint64_t slot = 0; slot < kReceives; slot++) PostReceive(slot);
  Arm();
}

Endpoint::~Endpoint() {
  // The device may have been removed. All objects of the device must be destroyed before the id.
  queue_pair_.reset();
  memory_.reset();
  queue_.reset();
  channel_.reset();
}

void Endpoint::PostReceive(uint64_t slot) {
  ibv_sge piece = {reinterpret_cast<uint64_t>(received(slot)),
                   static_cast<uint32_t>(receive_bytes_), memory_->lkey};
  ibv_recv_wr work = {};
  work.wr_id = slot;
  work.sg_list = &piece;
  work.num_sge = 1;
  ibv_recv_wr* bad;
  if (const int error = ibv_post_recv(id_->qp, &work, &bad)) {
    throw RdmaError("ibv_post_recv", error);
  }
}

void Endpoint::Post(ibv_send_wr& work, const void* from, size_t bytes) {
  ibv_sge piece = {reinterpret_cast<uint64_t>(from), static_cast<uint32_t>(bytes), memory_->lkey};
  work.sg_list = &piece;
  work.num_sge = 1;
  work.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad;
  if (const int error = ibv_post_send(id_->qp, &work, &bad)) {
    throw RdmaError("ibv_post_send", error);
  }
}

void Endpoint::PostSend(const void* from, size_t bytes) {
  ibv_send_wr work = {};
  work.opcode = IBV_WR_SEND;
  Post(work, from, bytes);
}

void Endpoint::PostWrite(const void* from, size_t bytes, uint64_t address, uint32_t rkey) {
  ibv_send_wr work = {};
  work.opcode = IBV_WR_RDMA_WRITE;
  work.wr.rdma.remote_addr = address;
  work.wr.rdma.rkey = rkey;
  Post(work, from, bytes);
}

bool Endpoint::Poll(ibv_wc& completion) {
  const int count = ibv_poll_cq(queue_.get(), 1, &completion);
  if (count < 0) throw RdmaError("ibv_poll_cq failed");
  return count > 0;
}

void Endpoint::Arm() {
  if (ibv_req_notify_cq(queue_.get(), 0) != 0) throw RdmaError("ibv_req_notify_cq failed");
}

void Endpoint::TakeNotice() {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  if (ibv_get_cq_event(channel_.get(), &queue, &context) == 0) ibv_ack_cq_events(queue, 1);
}

}  // namespace kv
