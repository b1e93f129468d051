// A client that keeps its connection. Heartbeats find a dead server. The client connects again
// after pauses of 1, 2, 4, 8, 8, ... s, and gives up after 60 s without a connection.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "connection.h"

namespace shout {

class Client final : public Connection::Owner {
 public:
  static constexpr milliseconds kRequestTimeout{10'000}, kConnectTimeout{10'000};
  static constexpr milliseconds kHeartbeat{5'000}, kCloseTimeout{5'000};
  static constexpr milliseconds kFirstPause{1'000}, kLongestPause{8'000}, kGiveUp{60'000};

  enum class State { kConnecting, kConnected, kPausing, kGivenUp, kStopped };
  // kLost: the connection has ended, and the server may have executed the request.
  enum class Outcome { kAnswered, kTimedOut, kLost };
  using Reply = std::function<void(Outcome, std::string_view answer)>;

  // Starts to connect to an IPv4 address. Throws RdmaError.
  Client(Context& context, const std::string& address, uint16_t port);

  // Sends the text. The loop calls `reply` once; `reply` must not destroy the client. An empty
  // text is a heartbeat. Returns false when the text is longer than Message::kMaxText, when kDepth
  // requests are unanswered, and without a connection.
  bool Ask(std::string_view text, Reply reply);
  // Waits for the outstanding answers, then disconnects. Ends in kStopped.
  void Stop();

  State state() const { return state_; }
  // Why the latest connection, or attempt to connect, ended.
  const std::string& reason() const { return reason_; }

 private:
  struct Request {
    std::chrono::steady_clock::time_point deadline;
    Reply reply;  // empty after the time-out: the answer may still arrive
  };
  using Requests = std::map<uint64_t, Request>;  // in the order of their deadlines

  void OnMessage(Connection& connection, const Message& message) override;
  void OnProgress(Connection& connection) override;
  void OnCmEvent(const CmEvent& event);
  void OnDeadline();
  // Runs one step of connecting. An exception ends the attempt.
  void Try(void (Client::*step)());
  void ResolveAddress();
  void ResolveRoute();
  void Connect();
  void Lost(const std::string& why);
  void End(State state);
  void Disconnected(State state);
  void DropRequests();
  void SendHeartbeat();
  void ExpireRequests();
  void CloseWhenAnswered();
  // The first request without an answer or a time-out.
  Requests::iterator FirstOpenRequest();

  Context& context_;
  sockaddr_in server_ = {};
  State state_ = State::kConnecting;
  std::string reason_;
  milliseconds pause_ = kFirstPause;
  bool is_stopping_ = false, is_closing_ = false;
  uint64_t next_sequence_ = 1;
  Requests requests_;
  CmChannel events_;
  Timer deadline_;  // ends kConnecting and kPausing, and a connection that does not close
  Timer give_up_, heartbeat_, expiry_;
  Id id_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace shout
