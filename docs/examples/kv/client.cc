#include "client.h"

#include <arpa/inet.h>
#include <poll.h>

#include <cerrno>
#include <iterator>

namespace kv {
namespace {

constexpr int kResolve_ms = 2000;

// Takes an asynchronous event of the device. The event may be an old one, so the port's state
// counts.
void CheckDevice(rdma_cm_id* id) {
  ibv_context* const device = id->verbs;
  ibv_async_event event;
  Check(ibv_get_async_event(device, &event), "ibv_get_async_event");
  const ibv_event_type type = event.event_type;
  ibv_ack_async_event(&event);
  ibv_port_attr port = {};
  const bool is_up =
      ibv_query_port(device, id->port_num, &port) == 0 && port.state == IBV_PORT_ACTIVE;
  if (!is_up || type == IBV_EVENT_DEVICE_FATAL) {
    throw RdmaError(std::string("the connection has ended: ") + ibv_event_type_str(type));
  }
}

// The extra memory of an endpoint: the request to send, and the received value.
struct Exchange {
  Request request;
  char value[kMaxValueBytes];
};

}  // namespace

Client::Client(const std::string& address, uint16_t port)
    : events_(Check(rdma_create_event_channel(), "rdma_create_event_channel")) {
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  if (inet_pton(AF_INET, address.c_str(), &to.sin_addr) != 1) {
    throw RdmaError(address + " is no IPv4 address");
  }
  rdma_cm_id* id = nullptr;
  Check(rdma_create_id(events_.get(), &id, nullptr, RDMA_PS_TCP), "rdma_create_id");
  unconnected_.reset(id);
  Check(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), kResolve_ms),
        "rdma_resolve_addr");
  Expect(RDMA_CM_EVENT_ADDR_RESOLVED);
  Check(rdma_resolve_route(id, kResolve_ms), "rdma_resolve_route");
  Expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
  end_ = std::make_unique<Endpoint>(std::move(unconnected_), sizeof(Response), sizeof(Exchange));
  const Hello hello;
  rdma_conn_param parameters = {};
  parameters.private_data = &hello;
  parameters.private_data_len = sizeof hello;
  parameters.retry_count = 6;  // on soft-RoCE 7 means to retry for ever
  parameters.rnr_retry_count = 7;
  Check(rdma_connect(id, &parameters), "rdma_connect");
  Expect(RDMA_CM_EVENT_ESTABLISHED);
}

Client::~Client() {
  if (end_ != nullptr) end_->Disconnect();
}

void Client::Expect(rdma_cm_event_type wanted) {
  rdma_cm_event* raw = nullptr;
  Check(rdma_get_cm_event(events_.get(), &raw), "rdma_get_cm_event");
  const Event event(raw);
  if (event->event == wanted) return;
  std::string why = std::string(rdma_event_str(event->event)) + " (" +
                    std::to_string(event->status) + ") instead of " + rdma_event_str(wanted);
  // Our server's private data contains the reason.
  const rdma_conn_param& told = event->param.conn;
  if (event->event == RDMA_CM_EVENT_REJECTED && told.private_data != nullptr) {
    const char* const text = static_cast<const char*>(told.private_data);
    why += ": " + std::string(text, strnlen(text, told.private_data_len));
  }
  throw RdmaError(why);
}

Response Client::Ask(Operation operation, std::string_view key, std::string_view value) {
  if (key.empty() || key.size() > kMaxKeyBytes || value.size() > kMaxValueBytes) {
    throw std::invalid_argument("a key has 1 to 64 bytes, a value at most 1024");
  }
  auto& exchange = *reinterpret_cast<Exchange*>(end_->extra());
  Request& request = exchange.request;
  request.operation = operation;
  request.key_bytes = static_cast<uint32_t>(key.copy(request.key, kMaxKeyBytes));
  request.value_bytes = static_cast<uint32_t>(value.copy(request.value, kMaxValueBytes));
  request.rkey = end_->key();
  request.address = reinterpret_cast<uint64_t>(exchange.value);
  end_->PostSend(&request, sizeof request);
  return AwaitResponse();
}

Response Client::AwaitResponse() {
  for (;;) {
    ibv_wc completion;
    while (end_->Poll(completion)) {
      if (completion.status != IBV_WC_SUCCESS) {
        throw RdmaError(std::string("the connection has ended: ") +
                        ibv_wc_status_str(completion.status));
      }
      if (completion.opcode != IBV_WC_RECV) continue;
      Response response;
      std::memcpy(&response, end_->received(completion.wr_id), sizeof response);
      end_->PostReceive(completion.wr_id);
      return response;
    }
    AwaitNotice();
    end_->Arm();
  }
}

// A server may end the connection instead of answering, or the link may be down. No completion
// shows that.
void Client::AwaitNotice() {
  rdma_cm_id* const id = end_->id();
  pollfd fds[] = {
      {end_->descriptor(), POLLIN, 0}, {events_->fd, POLLIN, 0}, {id->verbs->async_fd, POLLIN, 0}};
  const int ready = poll(fds, std::size(fds), -1);
  if (ready < 0 && errno == EINTR) return;
  if (ready < 0) throw RdmaError("poll", errno);
  if (fds[0].revents != 0) return end_->TakeNotice();  // the answer may precede the end
  if (fds[2].revents != 0) return CheckDevice(id);
  rdma_cm_event* raw = nullptr;
  Check(rdma_get_cm_event(events_.get(), &raw), "rdma_get_cm_event");
  const Event event(raw);
  if (event->event == RDMA_CM_EVENT_DISCONNECTED || event->event == RDMA_CM_EVENT_DEVICE_REMOVAL) {
    throw RdmaError(std::string("the connection has ended: ") + rdma_event_str(event->event));
  }
}

std::optional<std::string> Client::Get(std::string_view key) {
  const Response response = Ask(Operation::kGet, key, {});
  if (response.status == Status::kNotFound) return std::nullopt;
  if (response.status != Status::kOk || response.value_bytes > kMaxValueBytes) {
    throw RdmaError("the server refused a get");
  }
  return std::string(reinterpret_cast<Exchange*>(end_->extra())->value, response.value_bytes);
}

void Client::Put(std::string_view key, std::string_view value) {
  if (Ask(Operation::kPut, key, value).status != Status::kOk) {
    throw RdmaError("the server refused a put");
  }
}

bool Client::Delete(std::string_view key) {
  return Ask(Operation::kDelete, key, {}).status == Status::kOk;
}

}  // namespace kv
