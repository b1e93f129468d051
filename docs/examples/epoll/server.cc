#include "server.h"

#include <netinet/in.h>

#include <algorithm>
#include <utility>

namespace shout {
namespace {

constexpr int kBacklog = 64;
constexpr size_t kMaxRejectData = 148;

void Reject(rdma_cm_id* id, std::string_view why) {
  rdma_reject(id, why.data(), static_cast<uint8_t>(std::min(why.size(), kMaxRejectData)));
}

}  // namespace

Server::Server(Context& context, uint16_t port, Handler handler)
    : context_(context),
      handler_(std::move(handler)),
      events_(context.loop, [this](const CmEvent& event) { OnCmEvent(event); }),
      close_timeout_(context.loop, [this] { peers_.clear(); }),
      listener_(events_.CreateId()) {
  sockaddr_in any = {};
  any.sin_family = AF_INET;
  any.sin_port = htons(port);
  Check(rdma_bind_addr(listener_.get(), reinterpret_cast<sockaddr*>(&any)), "rdma_bind_addr");
  Check(rdma_listen(listener_.get(), kBacklog), "rdma_listen");
  port_ = ntohs(rdma_get_src_port(listener_.get()));
}

void Server::OnCmEvent(const CmEvent& event) {
  switch (event.type) {
    case RDMA_CM_EVENT_CONNECT_REQUEST:
      return Accept(event);
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
    case RDMA_CM_EVENT_ADDR_CHANGE:
      peers_.erase(event.id);
      return;
    default:  // ESTABLISHED: requests may arrive before it, because an RTU can be late or lost
      return;
  }
}

void Server::Accept(const CmEvent& request) {
  rdma_cm_id* const id = request.id;
  Peer peer{Id(id), nullptr, nullptr};
  if (!request.private_data.starts_with(kHello)) return Reject(id, "not a client of this service");
  if (peers_.size() >= kMaxConnections) return Reject(id, "too many clients");
  try {
    peer.idle = std::make_unique<Timer>(context_.loop, [this, id] { peers_.erase(id); });
    peer.connection = std::make_unique<Connection>(context_, id, *this);
    rdma_conn_param parameters = {};
    parameters.rnr_retry_count = 3;
    Check(rdma_accept(id, &parameters), "rdma_accept");
    peer.connection->HasBegun();
  } catch (const std::runtime_error& error) {
    return Reject(id, error.what());
  }
  peer.idle->Set(kIdle);
  peers_.emplace(id, std::move(peer));
}

void Server::OnMessage(Connection& connection, const Message& message) {
  peers_.at(connection.id()).idle->Set(kIdle);
  const std::string_view text(message.text, message.bytes);
  connection.Send(message.sequence, text.empty() ? "" : handler_(text));
}

void Server::OnProgress(Connection& connection) {
  Peer& peer = peers_.at(connection.id());
  if (!connection.error().empty() && !peer.is_closing) {
    peers_.erase(connection.id());
  } else if (listener_ == nullptr) {
    CloseWhenAllIsSent(peer);
  }
}

void Server::CloseWhenAllIsSent(Peer& peer) {
  if (peer.is_closing || !peer.connection->HasSentAll()) return;
  peer.is_closing = true;
  peer.connection->Disconnect();
}

void Server::Stop() {
  listener_.reset();
  close_timeout_.Set(kCloseTimeout);
  for (auto& [id, peer] : peers_) CloseWhenAllIsSent(peer);
}

}  // namespace shout
