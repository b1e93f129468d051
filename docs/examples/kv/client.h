// A client of the key-value server. It has one connection and one request at a time, and its calls
// block.
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
  // Connects to `port` of an IPv4 address. RdmaError's text contains the network's or the server's
  // answer.
  Client(const std::string& address, uint16_t port);
  ~Client();

  // Throw RdmaError when the connection has ended. The caller then creates another Client.
  std::optional<std::string> Get(std::string_view key);
  void Put(std::string_view key, std::string_view value);
  bool Delete(std::string_view key);  // false: the key did not exist

 private:
  void Expect(rdma_cm_event_type wanted);
  Response Ask(Operation operation, std::string_view key, std::string_view value);
  Response AwaitResponse();
  // Waits until completions may be available. Throws when the connection has ended.
  void AwaitNotice();

  EventChannel events_;
  std::unique_ptr<Endpoint> end_;
  Id unconnected_;  // until end_ owns the id
};

}  // namespace kv
