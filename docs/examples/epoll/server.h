// A server that answers each request by a function of its text. A client that fails, or is silent
// for 15 s, loses its own connection only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "connection.h"

namespace shout {

class Server final : public Connection::Owner {
 public:
  static constexpr milliseconds kIdle{15'000}, kCloseTimeout{5'000};
  static constexpr size_t kMaxConnections = 64;
  using Handler = std::function<std::string(std::string_view text)>;

  // Listens on all devices; port 0 lets the system choose. Throws RdmaError.
  Server(Context& context, uint16_t port, Handler handler);

  uint16_t port() const { return port_; }
  size_t connections() const { return peers_.size(); }
  // Sends the outstanding answers and disconnects all clients.
  void Stop();
  bool stopped() const { return listener_ == nullptr && peers_.empty(); }

 private:
  struct Peer {
    Id id;
    std::unique_ptr<Connection> connection;
    std::unique_ptr<Timer> idle;
    bool is_closing = false;
  };

  void OnMessage(Connection& connection, const Message& message) override;
  void OnProgress(Connection& connection) override;
  void OnCmEvent(const CmEvent& event);
  void Accept(const CmEvent& request);
  void CloseWhenAllIsSent(Peer& peer);

  Context& context_;
  const Handler handler_;
  CmChannel events_;
  Timer close_timeout_;
  Id listener_;
  uint16_t port_ = 0;
  std::map<rdma_cm_id*, Peer> peers_;
};

}  // namespace shout
