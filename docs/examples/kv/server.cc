#include "server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <vector>

namespace kv {
namespace {

constexpr int kBacklog = 16;

// The extra memory of an endpoint: the outstanding responses, each with its value. A client that
// sends all its requests at once fills this memory exactly.
struct Reply {
  Response response;
  char value[kMaxValueBytes];
};
constexpr uint64_t kReplies = Endpoint::kReceives;

void MakeNonBlocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

void Reject(rdma_cm_id* id, std::string_view why) {
  rdma_reject(id, why.data(), static_cast<uint8_t>(why.size()));
}

}  // namespace

Server::Server(uint16_t port)
    : events_(Check(rdma_create_event_channel(), "rdma_create_event_channel")),
      stop_fd_(eventfd(0, EFD_CLOEXEC)) {
  MakeNonBlocking(events_->fd);
  rdma_cm_id* id = nullptr;
  Check(rdma_create_id(events_.get(), &id, nullptr, RDMA_PS_TCP), "rdma_create_id");
  listener_.reset(id);
  sockaddr_in any = {};
  any.sin_family = AF_INET;
  any.sin_port = htons(port);
  Check(rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&any)), "rdma_bind_addr");
  Check(rdma_listen(id, kBacklog), "rdma_listen");
}

Server::~Server() {
  connections_.clear();
  close(stop_fd_);
}

uint16_t Server::port() const { return ntohs(rdma_get_src_port(listener_.get())); }

void Server::Stop() { eventfd_write(stop_fd_, 1); }

void Server::Run() {
  for (;;) {
    std::vector<pollfd> fds = {{stop_fd_, POLLIN, 0}, {events_->fd, POLLIN, 0}};
    for (const auto& [id, connection] : connections_) {
      fds.push_back({connection.end->descriptor(), POLLIN, 0});
    }
    if (poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) throw RdmaError("poll", errno);
    if (fds[0].revents != 0) return;
    TakeEvents();
    std::vector<rdma_cm_id*> broken;
    for (auto& [id, connection] : connections_) {
      Serve(connection);
      if (connection.broken) broken.push_back(id);
    }
    for (rdma_cm_id* id : broken) End(id);
  }
}

void Server::TakeEvents() {
  rdma_cm_event* raw = nullptr;
  while (rdma_get_cm_event(events_.get(), &raw) == 0) {
    // The event is copied and acknowledged before an id is destroyed, because rdma_destroy_id waits
    // for the acknowledgement.
    const rdma_cm_event event = *raw;
    char private_data[UINT8_MAX] = {};
    rdma_cm_event copy = event;
    if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST && event.param.conn.private_data != nullptr) {
      std::memcpy(private_data, event.param.conn.private_data, event.param.conn.private_data_len);
      copy.param.conn.private_data = private_data;
    }
    rdma_ack_cm_event(raw);
    OnEvent(copy);
  }
  if (errno != EAGAIN && errno != EINTR) throw RdmaError("rdma_get_cm_event", errno);
}

void Server::OnEvent(const rdma_cm_event& event) {
  switch (event.event) {
    case RDMA_CM_EVENT_CONNECT_REQUEST:
      OnRequest(event.id, event.param.conn);
      break;
    case RDMA_CM_EVENT_ESTABLISHED:
      break;  // requests may arrive before it, because an RTU can be late or lost
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
      End(event.id);
      break;
    default:
      break;
  }
}

void Server::OnRequest(rdma_cm_id* raw, const rdma_conn_param& asked) {
  Id id(raw);
  Hello hello;
  if (asked.private_data == nullptr || asked.private_data_len < sizeof hello) {
    return Reject(raw, "not a client of this server");
  }
  std::memcpy(&hello, asked.private_data, sizeof hello);
  if (hello.magic != Hello::kMagic) return Reject(raw, "not a client of this server");
  if (connections_.size() >= kMaxConnections) return Reject(raw, "too many clients");
  Connection connection;
  try {
    connection.end =
        std::make_unique<Endpoint>(std::move(id), sizeof(Request), kReplies * sizeof(Reply));
  } catch (const RdmaError& error) {
    // The endpoint's constructor has destroyed the id, so the connection manager sends the REJ.
    return;
  }
  MakeNonBlocking(connection.end->descriptor());
  rdma_conn_param parameters = {};
  parameters.rnr_retry_count = 7;
  if (rdma_accept(raw, &parameters) != 0) return;
  connections_.emplace(raw, std::move(connection));
  count_ = connections_.size();
}

void Server::Serve(Connection& connection) {
  try {
    // Polls again after Arm, because no notification follows for completions between Poll and Arm.
    for (int round = 0; round < 2; round++) {
      ibv_wc completion;
      while (connection.end->Poll(completion)) {
        if (completion.status != IBV_WC_SUCCESS) {
          connection.broken = true;
          return;
        }
        if (completion.opcode == IBV_WC_RECV) {
          Answer(connection, completion.wr_id, completion.byte_len);
        }
      }
      if (round > 0) break;
      connection.end->TakeNotice();
      connection.end->Arm();
    }
  } catch (const RdmaError&) {
    connection.broken = true;
  }
}

void Server::Answer(Connection& connection, uint64_t slot, uint32_t bytes) {
  Request request;
  std::memcpy(&request, connection.end->received(slot), sizeof request);
  connection.end->PostReceive(slot);
  auto* const replies = reinterpret_cast<Reply*>(connection.end->extra());
  Reply& reply = replies[connection.responses++ % kReplies];
  reply.response = {Status::kOk, 0};
  const bool sound = bytes == sizeof request && request.key_bytes >= 1 &&
                     request.key_bytes <= kMaxKeyBytes && request.value_bytes <= kMaxValueBytes;
  const std::string_view key(request.key, sound ? request.key_bytes : 0);
  const auto found = values_.find(key);
  if (!sound) {
    reply.response.status = Status::kBadRequest;
  } else if (request.operation == Operation::kPut) {
    if (found == values_.end() && values_.size() >= kMaxKeys) {
      reply.response.status = Status::kFull;
    } else {
      values_.insert_or_assign(std::string(key), std::string(request.value, request.value_bytes));
    }
  } else if (found == values_.end()) {
    reply.response.status = Status::kNotFound;
  } else if (request.operation == Operation::kDelete) {
    values_.erase(found);
  } else {
    reply.response.value_bytes =
        static_cast<uint32_t>(found->second.copy(reply.value, kMaxValueBytes));
    // RC delivers in order: the value arrives before the response.
    connection.end->PostWrite(reply.value, reply.response.value_bytes, request.address,
                              request.rkey);
  }
  connection.end->PostSend(&reply.response, sizeof reply.response);
}

void Server::End(rdma_cm_id* id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  found->second.end->Disconnect();
  connections_.erase(found);
  count_ = connections_.size();
}

}  // namespace kv
