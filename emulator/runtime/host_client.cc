#include "emulator/runtime/host_client.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>

namespace rdmaemu::runtime {

Result<HostClient> HostClient::Connect(const std::string& socket_path) {
  return ConnectWith(socket_path, 0);
}

Result<HostClient> HostClient::ConnectWithoutBlocking(const std::string& socket_path) {
  return ConnectWith(socket_path, SOCK_NONBLOCK);
}

Result<HostClient> HostClient::ConnectWith(const std::string& socket_path, int socket_flags) {
  sockaddr_un name{};
  if (socket_path.size() >= sizeof name.sun_path) return Fail(ENAMETOOLONG);
  name.sun_family = AF_UNIX;
  socket_path.copy(name.sun_path, sizeof name.sun_path - 1);
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | socket_flags, 0));
  if (!fd) return Fail(errno);
  const timeval timeout{kTimeout.count(), 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
  ucred peer{};
  socklen_t size = sizeof peer;
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0 ||
      getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return Fail(errno);
  }
  return HostClient(std::move(fd), peer.pid);
}

rdmaemu::Status HostClient::AwaitAnswer(Duration limit) {
  const auto until = std::chrono::steady_clock::now() + std::min<Duration>(limit, kMostPatience);
  for (;;) {
    const auto left = std::max(until - std::chrono::steady_clock::now(), Duration::zero());
    // Rounded up, so that poll(2) does not return before the limit.
    const auto left_ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    pollfd answer{socket_.get(), POLLIN, 0};
    const int ready = poll(&answer, 1, static_cast<int>(std::min<int64_t>(left_ms, INT_MAX)));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return Fail(errno);
    if (ready == 0 && left <= Duration::zero()) return Fail(ETIMEDOUT);
  }
}

rdmaemu::Status HostClient::Send(CallOp op, std::span<const std::byte> body) {
  const CallHeader header{static_cast<uint32_t>(op), static_cast<uint32_t>(body.size())};
  std::string message(sizeof header + body.size(), '\0');
  std::memcpy(message.data(), &header, sizeof header);
  if (!body.empty()) std::memcpy(message.data() + sizeof header, body.data(), body.size());
  if (send(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL) < 0) return Fail(errno);
  return {};
}

Result<std::string> HostClient::Receive() {
  const auto reply = std::make_unique_for_overwrite<char[]>(kMaxReplyBytes);
  // A reply may carry descriptors (Hello's does). The kernel closes them because recv(2) has no
  // room for control data.
  const ssize_t got = recv(socket_.get(), reply.get(), kMaxReplyBytes, 0);
  if (got < 0) return Fail(errno);
  ReplyHeader answer;
  if (static_cast<size_t>(got) < sizeof answer) return Fail(ECONNRESET);
  std::memcpy(&answer, reply.get(), sizeof answer);
  if (answer.error != 0) return Fail(answer.error);
  if (answer.size != static_cast<size_t>(got) - sizeof answer) return Fail(EPROTO);
  return std::string(reply.get() + sizeof answer, answer.size);
}

Result<std::string> HostClient::Call(CallOp op, std::span<const std::byte> body, Duration limit) {
  if (const auto sent = Send(op, body); !sent) return Fail(sent.error().code);
  if (const auto there = AwaitAnswer(limit); !there) return Fail(there.error().code);
  return Receive();
}

Result<std::string> HostClient::Status(Duration limit) {
  return Call(CallOp::kHostStatus, {}, limit);
}

rdmaemu::Status HostClient::Stop() {
  const Result<std::string> answer = Call(CallOp::kHostStop, {});
  if (!answer) return Fail(answer.error().code);
  return {};
}

rdmaemu::Status HostClient::ChangeDevice(const ChangeDeviceIn& change,
                                         std::string_view profile_toml) {
  std::string body(reinterpret_cast<const char*>(&change), sizeof change);
  body += profile_toml;
  const Result<std::string> answer =
      Call(CallOp::kChangeDevice, std::as_bytes(std::span<const char>(body)));
  if (!answer) return Fail(answer.error().code);
  return {};
}

Result<std::string> HostClient::Fault(CallOp op, std::string_view text) {
  return Call(op, std::as_bytes(std::span(text)));
}

Result<std::string> HostClient::WaitForRule(std::string_view rule, uint64_t times,
                                            Duration timeout) {
  const FaultWaitIn in{times};
  std::string body(reinterpret_cast<const char*>(&in), sizeof in);
  body += rule;
  return Call(CallOp::kFaultWait, std::as_bytes(std::span(body)),
              std::max<Duration>(timeout, kAnswerTime));
}

Result<ClockOut> HostClient::Clock(const ClockIn& in) {
  const Result<std::string> answer = Call(CallOp::kClock, std::as_bytes(std::span(&in, 1)));
  if (!answer) return Fail(answer.error().code);
  ClockOut out;
  if (answer->size() != sizeof out) return Fail(EPROTO);
  std::memcpy(&out, answer->data(), sizeof out);
  out.mode[sizeof out.mode - 1] = '\0';
  return out;
}

Result<std::string> HostClient::ReadFile(std::string_view path) {
  return Call(CallOp::kReadFile, std::as_bytes(std::span(path)));
}

rdmaemu::Status HostClient::Hello(const std::string& program) {
  HelloIn in{};
  in.version = kCallVersion;
  in.pid = static_cast<uint32_t>(getpid());
  program.copy(in.program, sizeof in.program - 1);
  const Result<std::string> answer = Call(CallOp::kHello, std::as_bytes(std::span(&in, 1)));
  if (!answer) return Fail(answer.error().code);
  return {};
}

}  // namespace rdmaemu::runtime
