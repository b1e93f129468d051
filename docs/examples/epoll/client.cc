#include "client.h"

#include <arpa/inet.h>

#include <algorithm>
#include <utility>

namespace shout {
namespace {

constexpr int kResolve_ms = 2000;
constexpr uint8_t kRetries = 3;  // of a packet: a dead server is found after about 8 s

}  // namespace

Client::Client(Context& context, const std::string& address, uint16_t port)
    : context_(context),
      events_(context.loop, [this](const CmEvent& event) { OnCmEvent(event); }),
      deadline_(context.loop, [this] { OnDeadline(); }),
      give_up_(context.loop, [this] { End(State::kGivenUp); }),
      heartbeat_(context.loop, [this] { SendHeartbeat(); }),
      expiry_(context.loop, [this] { ExpireRequests(); }) {
  server_.sin_family = AF_INET;
  server_.sin_port = htons(port);
  if (inet_pton(AF_INET, address.c_str(), &server_.sin_addr) != 1) throw RdmaError(address, EINVAL);
  give_up_.Set(kGiveUp);
  Try(&Client::ResolveAddress);
}

void Client::Try(void (Client::*step)()) {
  try {
    (this->*step)();
  } catch (const std::runtime_error& error) {
    Lost(error.what());
  }
}

void Client::ResolveAddress() {
  state_ = State::kConnecting;
  deadline_.Set(kConnectTimeout);
  id_ = events_.CreateId();
  auto* const server = reinterpret_cast<sockaddr*>(&server_);
  Check(rdma_resolve_addr(id_.get(), nullptr, server, kResolve_ms), "rdma_resolve_addr");
}

void Client::ResolveRoute() {
  Check(rdma_resolve_route(id_.get(), kResolve_ms), "rdma_resolve_route");
}

void Client::Connect() {
  connection_ = std::make_unique<Connection>(context_, id_.get(), *this);
  rdma_conn_param parameters = {};
  parameters.private_data = kHello.data();
  parameters.private_data_len = static_cast<uint8_t>(kHello.size());
  parameters.retry_count = parameters.rnr_retry_count = kRetries;
  Check(rdma_connect(id_.get(), &parameters), "rdma_connect");
  connection_->HasBegun();
}

void Client::OnCmEvent(const CmEvent& event) {
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      return Try(&Client::ResolveRoute);
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      return Try(&Client::Connect);
    case RDMA_CM_EVENT_ESTABLISHED:
      state_ = State::kConnected;
      pause_ = kFirstPause;
      give_up_.Clear();
      deadline_.Clear();
      return heartbeat_.Set(kHeartbeat);
    case RDMA_CM_EVENT_DISCONNECTED:
      if (connection_) connection_->TakeCompletions();  // the server's last answers
      [[fallthrough]];
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
    case RDMA_CM_EVENT_ADDR_CHANGE:
      // Zeros follow the text in the private data.
      return Lost(rdma_event_str(event.type) + (" " + std::to_string(event.status) + " ") +
                  event.private_data.c_str());
    default:  // TIMEWAIT_EXIT: each attempt has an id and a queue pair of its own
      return;
  }
}

void Client::OnDeadline() {
  if (state_ == State::kPausing) return Try(&Client::ResolveAddress);
  if (state_ == State::kConnecting) return Lost("no answer to the connection request");
  Lost(connection_->error().empty() ? "no answer to the end" : connection_->error());
}

void Client::Lost(const std::string& why) {
  reason_ = why;
  if (is_stopping_) return End(State::kStopped);
  if (state_ == State::kConnected) give_up_.Set(kGiveUp);
  Disconnected(State::kPausing);
  deadline_.Set(pause_);
  pause_ = std::min(2 * pause_, kLongestPause);
  DropRequests();
}

void Client::End(State state) {
  Disconnected(state);
  give_up_.Clear();
  DropRequests();
}

void Client::Disconnected(State state) {
  state_ = state;
  connection_.reset();
  id_.reset();
  for (Timer* timer : {&deadline_, &heartbeat_, &expiry_}) timer->Clear();
}

// Requests are not repeated: the server may have executed them.
void Client::DropRequests() {
  for (auto& [sequence, request] : std::exchange(requests_, {})) {
    if (request.reply) request.reply(Outcome::kLost, "");
  }
}

void Client::Stop() {
  is_stopping_ = true;
  if (state_ == State::kConnected) return CloseWhenAnswered();
  End(State::kStopped);
}

Client::Requests::iterator Client::FirstOpenRequest() {
  return std::find_if(requests_.begin(), requests_.end(),
                      [](const auto& entry) { return !!entry.second.reply; });
}

void Client::CloseWhenAnswered() {
  if (is_closing_ || FirstOpenRequest() != requests_.end()) return;
  is_closing_ = true;
  deadline_.Set(kCloseTimeout);
  connection_->Disconnect();
}

bool Client::Ask(std::string_view text, Reply reply) {
  if (state_ != State::kConnected || is_stopping_ || requests_.size() >= kDepth ||
      text.size() > Message::kMaxText) {
    return false;
  }
  const auto deadline = std::chrono::steady_clock::now() + kRequestTimeout;
  requests_[next_sequence_] = {deadline, std::move(reply)};
  if (FirstOpenRequest()->first == next_sequence_) expiry_.Set(kRequestTimeout);
  connection_->Send(next_sequence_++, text);
  if (!connection_->error().empty()) deadline_.Set(milliseconds(0));  // the loop ends it
  return true;
}

void Client::SendHeartbeat() {
  const bool is_sent = Ask("", [this](Outcome outcome, std::string_view) {
    if (outcome == Outcome::kTimedOut) Lost("no answer to a heartbeat");
  });
  if (!is_sent) heartbeat_.Set(kHeartbeat);
}

void Client::OnMessage(Connection&, const Message& message) {
  const auto request = requests_.extract(message.sequence);
  heartbeat_.Set(kHeartbeat);
  if (request.empty() || !request.mapped().reply) return;
  request.mapped().reply(Outcome::kAnswered, {message.text, message.bytes});
}

void Client::OnProgress(Connection& connection) {
  if (!connection.error().empty() && !is_closing_) return Lost(connection.error());
  if (is_stopping_) CloseWhenAnswered();
}

void Client::ExpireRequests() {
  const auto now = std::chrono::steady_clock::now();
  auto open = FirstOpenRequest();
  for (; open != requests_.end() && open->second.deadline <= now; open = FirstOpenRequest()) {
    std::exchange(open->second.reply, nullptr)(Outcome::kTimedOut, "");
  }
  if (open != requests_.end()) return expiry_.Set(open->second.deadline - now);
  if (requests_.size() >= kDepth) return Lost("no answer to any request");
  if (is_stopping_ && state_ == State::kConnected) CloseWhenAnswered();
}

}  // namespace shout
