// A client of the key-value server: one connection, one request at a time, calls that block.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "endpoint.h"
#include "protocol.h"

namespace kv {

class Client {
 public:
  // Connects to `port` of an IPv4 address; RdmaError says what the network or the server answered.
  Client(const std::string& address, uint16_t port);
  ~Client();

  // Throw RdmaError when the connection has ended: make another Client then.
  std::optional<std::string> Get(std::string_view key);
  void Put(std::string_view key, std::string_view value);
  bool Delete(std::string_view key);  // false: there was none

 private:
  void Expect(rdma_cm_event_type wanted);
  Response Ask(Operation operation, std::string_view key, std::string_view value);
  Response AwaitResponse();

  EventChannel events_;
  std::unique_ptr<Endpoint> end_;
  Id unconnected_;  // until end_ has it
};

}  // namespace kv
