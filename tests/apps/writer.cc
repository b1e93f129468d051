// Two processes that send by RDMA WRITE with immediate data, and receive by its completions alone.
// The client writes a number and the server writes it back. When the connection fails, each process
// disconnects, destroys its objects, and exits with 0.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

constexpr uint16_t kPort = 7471;
constexpr int kTimeout_ms = 2000;
constexpr int kWait_ms = 60'000;  // for an event or a completion
constexpr uint32_t kRounds = 5;
constexpr uint32_t kDepth = 16;

[[noreturn]] void Stop(const char* what) {
  printf("%s: %s\n", what, strerror(errno));
  exit(1);
}
void Check(bool holds, const char* what) {
  if (!holds) Stop(what);
}

// The memory that the peer writes to. The private data of the connection's messages contains this
// structure.
struct Target {
  uint64_t address;
  uint32_t rkey;
};

class Writer {
 public:
  Writer() : events_(rdma_create_event_channel()) {
    Check(events_ != nullptr, "rdma_create_event_channel");
  }
  void Serve(sockaddr* address);
  void Connect(sockaddr* address);
  // Returns true if the peer's number of this round arrives.
  bool Await(uint32_t number);
  bool Write(uint32_t number);
  // Returns true after the peer has disconnected.
  bool AwaitEnd() { return Await(0); }
  void Close();

 private:
  rdma_cm_event_type Take(rdma_cm_event_type wanted);
  void Build();
  void PostReceive();
  rdma_conn_param Parameters();
  // Each returns false at the end of the connection.
  bool TakeCompletions(uint32_t number, bool& found);
  bool TakeAsyncEvent();
  bool TakeEvent();

  rdma_event_channel* events_;
  rdma_cm_id* listener_ = nullptr;
  rdma_cm_id* id_ = nullptr;
  ibv_comp_channel* completions_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* mr_ = nullptr;
  uint32_t bytes_[2] = {};  // what arrives, and what is sent
  Target mine_{}, peer_{};
};

// Waits for this event of a connection that is being established.
rdma_cm_event_type Writer::Take(rdma_cm_event_type wanted) {
  rdma_cm_event* event = nullptr;
  Check(rdma_get_cm_event(events_, &event) == 0, "rdma_get_cm_event");
  const rdma_cm_event_type type = event->event;
  if (type != wanted) printf("%s instead of %s\n", rdma_event_str(type), rdma_event_str(wanted));
  if (type != wanted) exit(1);
  if (type == RDMA_CM_EVENT_CONNECT_REQUEST) id_ = event->id;
  if (event->param.conn.private_data_len >= sizeof peer_ &&
      (type == RDMA_CM_EVENT_CONNECT_REQUEST || listener_ == nullptr)) {
    memcpy(&peer_, event->param.conn.private_data, sizeof peer_);
  }
  rdma_ack_cm_event(event);
  return type;
}

void Writer::Build() {
  completions_ = ibv_create_comp_channel(id_->verbs);
  Check(completions_ != nullptr, "ibv_create_comp_channel");
  cq_ = ibv_create_cq(id_->verbs, 2 * kDepth, nullptr, completions_, 0);
  Check(cq_ != nullptr, "ibv_create_cq");
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = cq_;
  attributes.cap = {kDepth, kDepth, 1, 1, 0};
  attributes.qp_type = IBV_QPT_RC;
  attributes.sq_sig_all = 1;
  Check(rdma_create_qp(id_, nullptr, &attributes) == 0, "rdma_create_qp");
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  mr_ = ibv_reg_mr(id_->pd, bytes_, sizeof bytes_, access);
  Check(mr_ != nullptr, "ibv_reg_mr");
  mine_ = {reinterpret_cast<uint64_t>(&bytes_[0]), mr_->rkey};
  Check(ibv_req_notify_cq(cq_, 0) == 0, "ibv_req_notify_cq");
  for (uint32_t i = 0; i < kDepth; ++i) PostReceive();
}

void Writer::PostReceive() {
  ibv_recv_wr request{}, *bad = nullptr;
  ibv_post_recv(id_->qp, &request, &bad);
}

rdma_conn_param Writer::Parameters() {
  rdma_conn_param parameters{};
  parameters.private_data = &mine_;
  parameters.private_data_len = sizeof mine_;
  parameters.retry_count = parameters.rnr_retry_count = 6;
  return parameters;
}

void Writer::Serve(sockaddr* address) {
  Check(rdma_create_id(events_, &listener_, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
  Check(rdma_bind_addr(listener_, address) == 0, "rdma_bind_addr");
  Check(rdma_listen(listener_, 1) == 0, "rdma_listen");
  Take(RDMA_CM_EVENT_CONNECT_REQUEST);
  Build();
  rdma_conn_param parameters = Parameters();
  Check(rdma_accept(id_, &parameters) == 0, "rdma_accept");
  Take(RDMA_CM_EVENT_ESTABLISHED);
}

void Writer::Connect(sockaddr* address) {
  Check(rdma_create_id(events_, &id_, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
  Check(rdma_resolve_addr(id_, nullptr, address, kTimeout_ms) == 0, "rdma_resolve_addr");
  Take(RDMA_CM_EVENT_ADDR_RESOLVED);
  Check(rdma_resolve_route(id_, kTimeout_ms) == 0, "rdma_resolve_route");
  Take(RDMA_CM_EVENT_ROUTE_RESOLVED);
  Build();
  rdma_conn_param parameters = Parameters();
  Check(rdma_connect(id_, &parameters) == 0, "rdma_connect");
  Take(RDMA_CM_EVENT_ESTABLISHED);
}

bool Writer::Write(uint32_t number) {
  bytes_[1] = number;
  ibv_sge piece{reinterpret_cast<uint64_t>(&bytes_[1]), sizeof bytes_[1], mr_->lkey};
  ibv_send_wr request{}, *bad = nullptr;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.imm_data = htonl(number);
  request.wr.rdma = {peer_.address, peer_.rkey};
  const int error = ibv_post_send(id_->qp, &request, &bad);
  if (error != 0) printf("ibv_post_send: %s\n", strerror(error));
  return error == 0;
}

bool Writer::Await(uint32_t number) {
  for (;;) {
    bool found = false;
    if (!TakeCompletions(number, found)) return false;
    if (found) return true;
    pollfd ready[] = {
        {completions_->fd, POLLIN, 0}, {id_->verbs->async_fd, POLLIN, 0}, {events_->fd, POLLIN, 0}};
    if (poll(ready, 3, kWait_ms) <= 0) {
      errno = ETIMEDOUT;
      Stop("nothing came");
    }
    if (ready[0].revents != 0) {
      ibv_cq* cq = nullptr;
      void* context = nullptr;
      if (ibv_get_cq_event(completions_, &cq, &context) != 0) return false;
      ibv_ack_cq_events(cq, 1);
      ibv_req_notify_cq(cq, 0);
    } else if (ready[1].revents != 0 ? !TakeAsyncEvent() : !TakeEvent()) {
      return false;
    }
  }
}

bool Writer::TakeCompletions(uint32_t number, bool& found) {
  ibv_wc wc{};
  while (!found && ibv_poll_cq(cq_, 1, &wc) == 1) {
    if (wc.status != IBV_WC_SUCCESS) {
      printf("completion %s\n", ibv_wc_status_str(wc.status));
      return false;
    }
    if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM) continue;
    if (ntohl(wc.imm_data) != number || bytes_[0] != number) {
      printf("%u and %u arrived instead of %u\n", ntohl(wc.imm_data), bytes_[0], number);
      exit(1);
    }
    PostReceive();
    found = true;
  }
  return true;
}

bool Writer::TakeAsyncEvent() {
  ibv_async_event event{};
  if (ibv_get_async_event(id_->verbs, &event) != 0) return false;
  printf("asynchronous event %s\n", ibv_event_type_str(event.event_type));
  ibv_ack_async_event(&event);
  return event.event_type != IBV_EVENT_CQ_ERR && event.event_type != IBV_EVENT_DEVICE_FATAL;
}

bool Writer::TakeEvent() {
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(events_, &event) != 0) return false;
  printf("event %s\n", rdma_event_str(event->event));
  rdma_ack_cm_event(event);
  return false;  // each event of an established connection ends it
}

void Writer::Close() {
  rdma_disconnect(id_);
  rdma_destroy_qp(id_);
  ibv_dereg_mr(mr_);
  ibv_destroy_cq(cq_);
  ibv_destroy_comp_channel(completions_);
  rdma_destroy_id(id_);
  if (listener_ != nullptr) rdma_destroy_id(listener_);
  rdma_destroy_event_channel(events_);
}

}  // namespace

// usage: writer server|client ADDRESS
int main(int argc, char** argv) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kPort);
  if (argc != 3 || inet_pton(AF_INET, argv[2], &address.sin_addr) != 1) return 2;
  setvbuf(stdout, nullptr, _IOLBF, 0);
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  const bool server = std::string_view(argv[1]) == "server";
  Writer writer;
  server ? writer.Serve(name) : writer.Connect(name);
  uint32_t done = 0;
  for (bool goes_on = true; goes_on && done < kRounds;) {
    const uint32_t number = done + 1;
    goes_on = server ? writer.Await(number) && writer.Write(number)
                     : writer.Write(number) && writer.Await(number);
    if (goes_on) ++done;
  }
  if (server && done == kRounds) writer.AwaitEnd();
  printf("%u of %u rounds\n", done, kRounds);
  writer.Close();
}
