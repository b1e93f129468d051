#include "emulator/runtime/host_client.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

namespace rdmaemu::runtime {

Result<HostClient> HostClient::Connect(const std::string& socket_path) {
  sockaddr_un name{};
  if (socket_path.size() >= sizeof name.sun_path) return Fail(ENAMETOOLONG);
  name.sun_family = AF_UNIX;
  socket_path.copy(name.sun_path, sizeof name.sun_path - 1);
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd) return Fail(errno);
  const timeval timeout{kTimeoutSeconds, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
  ucred peer{};
  socklen_t size = sizeof peer;
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0 ||
      getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return Fail(errno);
  }
  return HostClient(std::move(fd), peer.pid);
}

Result<std::string> HostClient::Call(CallOp op, std::span<const std::byte> body) {
  const CallHeader header{static_cast<uint32_t>(op), static_cast<uint32_t>(body.size())};
  std::string message(sizeof header + body.size(), '\0');
  std::memcpy(message.data(), &header, sizeof header);
  if (!body.empty()) std::memcpy(message.data() + sizeof header, body.data(), body.size());
  if (send(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL) < 0) return Fail(errno);
  std::string reply(kMaxReplyBytes, '\0');
  // Descriptors that come with a reply (Hello's) are closed by the kernel: no room is given.
  ssize_t got;
  do {
    got = recv(socket_.get(), reply.data(), reply.size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return Fail(errno == EAGAIN ? ETIMEDOUT : errno);
  ReplyHeader answer;
  if (static_cast<size_t>(got) < sizeof answer) return Fail(ECONNRESET);
  std::memcpy(&answer, reply.data(), sizeof answer);
  if (answer.error != 0) return Fail(answer.error);
  if (answer.size != static_cast<size_t>(got) - sizeof answer) return Fail(EPROTO);
  return reply.substr(sizeof answer, answer.size);
}

Result<std::string> HostClient::Status() { return Call(CallOp::kHostStatus, {}); }

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
  const auto whole = std::chrono::duration_cast<std::chrono::microseconds>(timeout);
  const timeval limit{whole.count() / 1'000'000, whole.count() % 1'000'000};
  setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  const FaultWaitIn in{times};
  std::string body(reinterpret_cast<const char*>(&in), sizeof in);
  body += rule;
  return Call(CallOp::kFaultWait, std::as_bytes(std::span(body)));
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
