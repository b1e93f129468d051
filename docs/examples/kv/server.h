// A key-value server over RDMA. One thread serves all connections. When a client misbehaves or a
// device is removed, the server ends only the connections of that client or device.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "endpoint.h"
#include "protocol.h"

namespace kv {

class Server {
 public:
  static constexpr size_t kMaxKeys = 100'000;
  static constexpr size_t kMaxConnections = 256;

  // Listens on all devices. With port 0 the system chooses the port, and port() returns it.
  explicit Server(uint16_t port);
  ~Server();

  uint16_t port() const;
  // Serves until a call of Stop. Any thread may call Stop.
  void Run();
  void Stop();
  size_t connections() const { return count_; }

 private:
  // One client. Responses are stored in a ring with one slot for each possible outstanding
  // response.
  struct Connection {
    std::unique_ptr<Endpoint> end;
    uint64_t responses = 0;
    bool broken = false;
  };

  void TakeEvents();
  void OnEvent(const rdma_cm_event& event);
  void OnRequest(rdma_cm_id* id, const rdma_conn_param& asked);
  void Serve(Connection& connection);
  void Answer(Connection& connection, uint64_t slot, uint32_t bytes);
  void End(rdma_cm_id* id);

  EventChannel events_;
  Id listener_;
  int stop_fd_;
  std::map<rdma_cm_id*, Connection> connections_;
  std::atomic<size_t> count_{0};
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace kv
