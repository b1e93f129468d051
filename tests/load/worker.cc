// One of many programs under load. It listens, connects to other workers on any host, sends, writes
// and reads, disconnects at random, and may be killed at any moment. It checks nothing; load.py
// checks the hosts' remaining objects after the end of all workers.
//
// usage: worker OWN_ADDRESS OWN_PORT FIRST_PORT PORTS SEED ADDRESS...
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr uint32_t kReceives = 8;  // posted on each connection
constexpr uint32_t kMessageBytes = 1024;
constexpr uint32_t kLongBytes = 32768;  // of a WRITE or READ
constexpr size_t kMaxActive = 6;        // connections that this worker opens
constexpr size_t kMaxConnections = 64;  // including those that others open
constexpr int kMostMessages = 200;      // of one connection
constexpr int kCqEntries = 8192;

volatile sig_atomic_t g_stop = 0;

// Each end's private data.
struct Window {
  uint64_t address;
  uint32_t rkey;
  uint32_t bytes;
};

struct Connection {
  rdma_cm_id* id = nullptr;
  bool active = false, established = false, disconnecting = false;
  int messages_left = 0;
  Window peer{};
  uint64_t number = 0;
};

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "worker %d: %s: %s\n", static_cast<int>(getpid()), what,
               std::strerror(errno));
  std::exit(1);
}

class Worker {
 public:
  Worker(const char* own, uint16_t port, uint16_t first_port, uint16_t ports, uint64_t seed,
         std::vector<std::string> addresses)
      : random_(seed),
        first_port_(first_port),
        ports_(ports),
        addresses_(std::move(addresses)),
        memory_(2 * kLongBytes) {
    channel_ = rdma_create_event_channel();
    if (channel_ == nullptr) Fail("rdma_create_event_channel");
    Listen(own, port);
  }

  void Run() {
    while (g_stop == 0) {
      if (active_ < kMaxActive && connections_.size() < kMaxConnections) Open();
      pollfd ready[2] = {{channel_->fd, POLLIN, 0},
                         {completions_ ? completions_->fd : -1, POLLIN, 0}};
      poll(ready, 2, 20);
      if ((ready[0].revents & POLLIN) != 0) TakeEvent();
      if ((ready[1].revents & POLLIN) != 0) TakeCompletionEvent();
      TakeCompletions();
    }
    // Disconnects in order, as far as possible while other workers end as well.
    while (!connections_.empty()) Remove(*connections_.back());
    if (listener_ != nullptr) rdma_destroy_id(listener_);
    rdma_destroy_event_channel(channel_);
  }

 private:
  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }

  static sockaddr_in Address(const std::string& text, uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    inet_pton(AF_INET, text.c_str(), &address.sin_addr);
    return address;
  }

  void Listen(const char* own, uint16_t port) {
    sockaddr_in address = Address(own, port);
    if (rdma_create_id(channel_, &listener_, nullptr, RDMA_PS_TCP) != 0) Fail("rdma_create_id");
    if (rdma_bind_addr(listener_, reinterpret_cast<sockaddr*>(&address)) == 0 &&
        rdma_listen(listener_, 64) == 0) {
      return;
    }
    // Another worker listens on the port. This worker then only connects.
    rdma_destroy_id(listener_);
    listener_ = nullptr;
  }

  Connection& Add(rdma_cm_id* id, bool active) {
    connections_.push_back(std::make_unique<Connection>());
    Connection& made = *connections_.back();
    made.id = id;
    made.active = active;
    made.number = ++last_number_;
    id->context = &made;
    active_ += active ? 1 : 0;
    return made;
  }

  void Open() {
    rdma_cm_id* id = nullptr;
    if (rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP) != 0) Fail("rdma_create_id");
    Connection& made = Add(id, true);
    sockaddr_in to = Address(addresses_[Below(static_cast<uint32_t>(addresses_.size()))],
                             static_cast<uint16_t>(first_port_ + Below(ports_)));
    if (rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), 1000) != 0) Remove(made);
  }

  void Remove(Connection& gone) {
    rdma_cm_id* id = gone.id;
    active_ -= gone.active ? 1 : 0;
    for (size_t i = 0; i < connections_.size(); i++) {
      if (connections_[i].get() != &gone) continue;
      std::swap(connections_[i], connections_.back());
      connections_.pop_back();
      break;
    }
    if (id->qp != nullptr) rdma_destroy_qp(id);
    if (rdma_destroy_id(id) != 0) Fail("rdma_destroy_id");
  }

  bool GiveQueuePair(Connection& connection) {
    rdma_cm_id* id = connection.id;
    if (cq_ == nullptr) {
      completions_ = ibv_create_comp_channel(id->verbs);
      pd_ = ibv_alloc_pd(id->verbs);
      if (completions_ == nullptr || pd_ == nullptr) Fail("ibv_alloc_pd");
      cq_ = ibv_create_cq(id->verbs, kCqEntries, nullptr, completions_, 0);
      mr_ = ibv_reg_mr(pd_, memory_.data(), memory_.size(),
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
      if (cq_ == nullptr || mr_ == nullptr) Fail("ibv_create_cq");
      ibv_req_notify_cq(cq_, 0);
    }
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq_;
    init.cap = {4, kReceives, 1, 1, 0};
    init.qp_type = IBV_QPT_RC;
    if (rdma_create_qp(id, pd_, &init) != 0) return false;
    for (uint32_t i = 0; i < kReceives; i++) PostReceive(connection);
    return true;
  }

  // The peers use the lower half of the memory. This worker uses the upper half.
  ibv_sge Piece(uint32_t bytes) const {
    return {reinterpret_cast<uint64_t>(memory_.data() + kLongBytes), bytes, mr_->lkey};
  }
  Window OwnWindow() const {
    return {reinterpret_cast<uint64_t>(memory_.data()), mr_->rkey, kLongBytes};
  }

  void PostReceive(const Connection& connection) {
    ibv_sge sge = Piece(kMessageBytes);
    ibv_recv_wr receive{}, *bad;
    receive.wr_id = connection.number << 1;
    receive.sg_list = &sge;
    receive.num_sge = 1;
    ibv_post_recv(connection.id->qp, &receive, &bad);
  }

  void SendNext(Connection& connection) {
    if (connection.messages_left-- <= 0) return Disconnect(connection);
    const uint32_t kind = Below(4);
    ibv_sge sge = Piece(kind < 2 ? 1 + Below(kMessageBytes) : 1 + Below(connection.peer.bytes));
    ibv_send_wr send{}, *bad;
    send.wr_id = connection.number << 1 | 1;
    send.sg_list = &sge;
    send.num_sge = 1;
    send.send_flags = IBV_SEND_SIGNALED;
    send.opcode = kind < 2 ? IBV_WR_SEND : kind == 2 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
    send.wr.rdma.remote_addr = connection.peer.address;
    send.wr.rdma.rkey = connection.peer.rkey;
    if (ibv_post_send(connection.id->qp, &send, &bad) != 0) Disconnect(connection);
  }

  void Disconnect(Connection& connection) {
    if (connection.disconnecting) return;
    connection.disconnecting = true;
    // In one of four cases the library and the host disconnect instead of the program.
    if (Below(4) == 0) return Remove(connection);
    rdma_disconnect(connection.id);
  }

  rdma_conn_param Parameters(Window& window) {
    window = OwnWindow();
    rdma_conn_param parameters{};
    parameters.private_data = &window;
    parameters.private_data_len = sizeof window;
    parameters.responder_resources = parameters.initiator_depth = 4;
    parameters.retry_count = parameters.rnr_retry_count = 7;
    return parameters;
  }

  void TakeEvent() {
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(channel_, &event) != 0) Fail("rdma_get_cm_event");
    const rdma_cm_event_type type = event->event;
    rdma_cm_id* id = event->id;
    Window peer{};
    if ((type == RDMA_CM_EVENT_CONNECT_REQUEST || type == RDMA_CM_EVENT_ESTABLISHED) &&
        event->param.conn.private_data_len >= sizeof peer) {
      std::memcpy(&peer, event->param.conn.private_data, sizeof peer);
    }
    rdma_ack_cm_event(event);
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) return OnRequest(id, peer);
    if (id->context == nullptr) return;  // the listener's id
    Connection& connection = *static_cast<Connection*>(id->context);
    Window window;
    switch (type) {
      case RDMA_CM_EVENT_ADDR_RESOLVED:
        if (rdma_resolve_route(id, 1000) != 0) Remove(connection);
        return;
      case RDMA_CM_EVENT_ROUTE_RESOLVED: {
        if (!GiveQueuePair(connection)) return Remove(connection);
        rdma_conn_param parameters = Parameters(window);
        if (rdma_connect(id, &parameters) != 0) Remove(connection);
        return;
      }
      case RDMA_CM_EVENT_ESTABLISHED:
        connection.established = true;
        if (!connection.active) return;
        connection.peer = peer;
        connection.messages_left = static_cast<int>(Below(kMostMessages));
        if (peer.bytes == 0 || peer.bytes > kLongBytes) return Remove(connection);
        return SendNext(connection);
      case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        return;
      default:  // rejected, unreachable or disconnected
        return Remove(connection);
    }
  }

  void OnRequest(rdma_cm_id* id, const Window& peer) {
    if (connections_.size() >= kMaxConnections || Below(10) == 0) {
      rdma_reject(id, nullptr, 0);
      rdma_destroy_id(id);
      return;
    }
    Connection& connection = Add(id, false);
    connection.peer = peer;
    if (!GiveQueuePair(connection)) return Remove(connection);
    Window window;
    rdma_conn_param parameters = Parameters(window);
    if (rdma_accept(id, &parameters) != 0) Remove(connection);
  }

  void TakeCompletionEvent() {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(completions_, &cq, &context) != 0) Fail("ibv_get_cq_event");
    ibv_ack_cq_events(cq, 1);
    ibv_req_notify_cq(cq, 0);
  }

  Connection* Find(uint64_t number) {
    for (const auto& connection : connections_) {
      if (connection->number == number) return connection.get();
    }
    return nullptr;
  }

  void TakeCompletions() {
    if (cq_ == nullptr) return;
    ibv_wc entries[16];
    for (int count; (count = ibv_poll_cq(cq_, 16, entries)) > 0;) {
      for (int i = 0; i < count; i++) {
        Connection* connection = Find(entries[i].wr_id >> 1);
        if (connection == nullptr || entries[i].status != IBV_WC_SUCCESS) continue;
        const bool sent = (entries[i].wr_id & 1) != 0;
        if (!sent) {
          PostReceive(*connection);
        } else if (!connection->disconnecting) {
          SendNext(*connection);
        }
      }
    }
  }

  std::mt19937_64 random_;
  uint16_t first_port_, ports_;
  std::vector<std::string> addresses_;
  std::vector<char> memory_;
  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* listener_ = nullptr;
  ibv_comp_channel* completions_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* mr_ = nullptr;
  std::vector<std::unique_ptr<Connection>> connections_;
  size_t active_ = 0;
  uint64_t last_number_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 7) {
    std::fprintf(stderr, "usage: worker OWN_ADDRESS OWN_PORT FIRST_PORT PORTS SEED ADDRESS...\n");
    return 2;
  }
  struct sigaction stop {};
  stop.sa_handler = [](int) { g_stop = 1; };
  sigaction(SIGTERM, &stop, nullptr);
  const auto number = [&](int index) { return std::strtoull(argv[index], nullptr, 10); };
  Worker worker(argv[1], static_cast<uint16_t>(number(2)), static_cast<uint16_t>(number(3)),
                static_cast<uint16_t>(number(4)), number(5), {argv + 6, argv + argc});
  worker.Run();
  return 0;
}
