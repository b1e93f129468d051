#include "connection.h"

namespace shout {

CmChannel::CmChannel(Loop& loop, std::function<void(const CmEvent&)> on_event)
    : channel_(Check(rdma_create_event_channel(), "rdma_create_event_channel")) {
  MakeNonBlocking(channel_->fd);
  watch_.emplace(loop, channel_->fd, [this, on_event] { TakeEvent(on_event); });
}

Id CmChannel::CreateId() const {
  rdma_cm_id* id = nullptr;
  Check(rdma_create_id(channel_.get(), &id, nullptr, RDMA_PS_TCP), "rdma_create_id");
  return Id(id);
}

void CmChannel::TakeEvent(const std::function<void(const CmEvent&)>& on_event) const {
  rdma_cm_event* raw = nullptr;
  if (rdma_get_cm_event(channel_.get(), &raw) != 0) {
    if (errno == EAGAIN || errno == EINTR) return;
    throw RdmaError("rdma_get_cm_event", errno);
  }
  CmEvent event = {raw->event, raw->id, raw->status, {}};
  if (raw->event == RDMA_CM_EVENT_CONNECT_REQUEST || raw->event == RDMA_CM_EVENT_REJECTED) {
    const auto* const data = static_cast<const char*>(raw->param.conn.private_data);
    if (data != nullptr) event.private_data.assign(data, raw->param.conn.private_data_len);
  }
  rdma_ack_cm_event(raw);
  on_event(event);
}

void AsyncEvents::Add(Connection* connection) {
  ibv_context* const context = connection->id()->verbs;
  Device& device = devices_[context];
  if (!device.watch) {
    MakeNonBlocking(context->async_fd);
    device.watch.emplace(loop_, context->async_fd, [this, context] { TakeEvent(context); });
  }
  device.connections.insert(connection);
}

void AsyncEvents::Remove(Connection* connection) {
  const auto device = devices_.find(connection->id()->verbs);
  device->second.connections.erase(connection);
  if (device->second.connections.empty()) devices_.erase(device);
}

void AsyncEvents::TakeEvent(ibv_context* context) {
  ibv_async_event event;
  if (ibv_get_async_event(context, &event) != 0) {
    if (errno == EAGAIN || errno == EINTR) return;
    throw RdmaError("ibv_get_async_event", errno);
  }
  std::set<Connection*> failed;
  switch (event.event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      failed = {static_cast<Connection*>(event.element.qp->qp_context)};
      break;
    case IBV_EVENT_CQ_ERR:
      failed = {static_cast<Connection*>(event.element.cq->cq_context)};
      break;
    case IBV_EVENT_DEVICE_FATAL:
      failed = devices_[context].connections;
      break;
    case IBV_EVENT_COMM_EST:  // data arrived before the RTU
      rdma_notify(static_cast<Connection*>(event.element.qp->qp_context)->id(), event.event_type);
      break;
    default:  // events of ports and addresses: failed completions end a connection
      break;
  }
  // Acknowledges the event before connections are destroyed, because ibv_destroy_qp and
  // ibv_destroy_cq wait for the acknowledgement.
  ibv_ack_async_event(&event);
  for (Connection* const connection : failed) {
    const auto device = devices_.find(context);
    if (device == devices_.end() || device->second.connections.count(connection) == 0) continue;
    connection->Fail(ibv_event_type_str(event.event_type));
    connection->NotifyOwner();
  }
}

Connection::Connection(Context& context, rdma_cm_id* id, Owner& owner)
    : context_(context), id_(id), owner_(owner), messages_() {
  channel_.reset(Check(ibv_create_comp_channel(id->verbs), "ibv_create_comp_channel"));
  MakeNonBlocking(channel_->fd);
  queue_.reset(
      Check(ibv_create_cq(id->verbs, 2 * kDepth, this, channel_.get(), 0), "ibv_create_cq"));
  memory_.reset(
      Check(ibv_reg_mr(id->pd, messages_.data(), sizeof messages_, IBV_ACCESS_LOCAL_WRITE),
            "ibv_reg_mr"));
  ibv_qp_init_attr attributes = {};
  attributes.qp_context = this;
  attributes.send_cq = attributes.recv_cq = queue_.get();
  attributes.cap = {kDepth, kDepth, 1, 1, 0};
  attributes.qp_type = IBV_QPT_RC;
  attributes.sq_sig_all = 1;
  Check(rdma_create_qp(id, id->pd, &attributes), "rdma_create_qp");
  queue_pair_.reset(id);
  for (uint64_t slot = 0; slot < kDepth; slot++) {
    PostReceive(slot);
    free_sends_.push_back(kDepth + slot);
  }
  watch_.emplace(context.loop, channel_->fd, [this] {
    TakeCompletions();
    NotifyOwner();
  });
  TakeCompletions();  // arms the queue
  if (!error_.empty()) throw RdmaError(error_);
  context.async.Add(this);
}

Connection::~Connection() {
  context_.async.Remove(this);
  Disconnect();
}

void Connection::Fail(const std::string& why) {
  if (error_.empty()) error_ = why;
}

void Connection::Send(uint64_t sequence, std::string_view text) {
  if (waiting_.size() >= kDepth) return Fail("more requests than the peer may send");
  Message& message = waiting_.emplace_back();
  message.sequence = sequence;
  message.bytes = static_cast<uint32_t>(text.copy(message.text, Message::kMaxText));
  PostSends();
}

void Connection::PostSends() {
  while (error_.empty() && !waiting_.empty() && !free_sends_.empty()) {
    const uint64_t slot = free_sends_.back();
    messages_[slot] = waiting_.front();
    ibv_sge piece = {reinterpret_cast<uint64_t>(&messages_[slot]),
                     static_cast<uint32_t>(Message::kHeader) + messages_[slot].bytes,
                     memory_->lkey};
    ibv_send_wr work = {};
    work.wr_id = slot;
    work.sg_list = &piece;
    work.num_sge = 1;
    work.opcode = IBV_WR_SEND;
    ibv_send_wr* bad;
    const int error = ibv_post_send(id_->qp, &work, &bad);
    // The queue is full. The next completion, if one is outstanding, retries the send.
    if (error == ENOMEM && free_sends_.size() < kDepth) return;
    if (error != 0) return Fail(RdmaError("ibv_post_send", error).what());
    waiting_.pop_front();
    free_sends_.pop_back();
  }
}

void Connection::PostReceive(uint64_t slot) {
  ibv_sge piece = {reinterpret_cast<uint64_t>(&messages_[slot]), sizeof(Message), memory_->lkey};
  ibv_recv_wr work = {};
  work.wr_id = slot;
  work.sg_list = &piece;
  work.num_sge = 1;
  ibv_recv_wr* bad;
  const int error = ibv_post_recv(id_->qp, &work, &bad);
  if (error != 0) Fail(RdmaError("ibv_post_recv", error).what());
}

void Connection::TakeCompletions() {
  ibv_cq* queue;
  void* context;
  while (ibv_get_cq_event(channel_.get(), &queue, &context) == 0) ibv_ack_cq_events(queue, 1);
  if (errno != EAGAIN && errno != EINTR) Fail(RdmaError("ibv_get_cq_event", errno).what());
  // Arms the queue before it empties the queue, so that later completions make the channel
  // readable.
  const int error = ibv_req_notify_cq(queue_.get(), 0);
  if (error != 0) Fail(RdmaError("ibv_req_notify_cq", error).what());
  ibv_wc completion;
  int count = 0;
  while (error_.empty() && (count = ibv_poll_cq(queue_.get(), 1, &completion)) > 0) {
    Complete(completion);
  }
  if (count < 0) Fail("ibv_poll_cq failed");
}

void Connection::Complete(const ibv_wc& completion) {
  if (completion.status != IBV_WC_SUCCESS) return Fail(ibv_wc_status_str(completion.status));
  if (completion.wr_id >= kDepth) {
    free_sends_.push_back(completion.wr_id);
    return PostSends();
  }
  const Message message = messages_[completion.wr_id];
  PostReceive(completion.wr_id);
  if (completion.byte_len < Message::kHeader ||
      completion.byte_len != Message::kHeader + message.bytes) {
    return Fail("malformed message");
  }
  owner_.OnMessage(*this, message);
}

}  // namespace shout
