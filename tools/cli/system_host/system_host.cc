#include "tools/cli/system_host/system_host.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "emulator/host/calls/text_reply.h"
#include "emulator/runtime/call_server.h"
#include "emulator/runtime/host_setup.h"

namespace rdmaemu::cli {
namespace {

using layer::faults::AnswerOut;
using layer::faults::kAskMoment;
using layer::faults::kAwaitMoment;
using layer::faults::MomentIn;
using runtime::UniqueFd;

Time SteadyNow() { return Time(std::chrono::steady_clock::now().time_since_epoch()); }

Reply ErrorReply(int error) {
  Reply reply;
  reply.error = error;
  return reply;
}

Reply AnswerReply(const AnswerOut& out) {
  Reply reply;
  reply.body.assign(std::as_bytes(std::span(&out, 1)));
  return reply;
}

bool SendTo(int socket, const Reply& reply) {
  const ReplyHeader header{reply.error, static_cast<uint32_t>(reply.body.size()), 0, 0};
  std::vector<std::byte> message(sizeof header + reply.body.size());
  std::memcpy(message.data(), &header, sizeof header);
  if (!reply.body.empty()) {
    std::memcpy(message.data() + sizeof header, reply.body.data(), reply.body.size());
  }
  return send(socket, message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

std::string Because(const std::string& what) { return what + ": " + std::strerror(errno); }

}  // namespace

SystemHost::SystemHost(const runtime::Registry& registry, const runtime::HostOptions& options,
                       const RandomSeed& seed)
    : name_(options.name),
      seed_(runtime::SeedText(seed)),
      socket_path_(registry.SocketPath(options.name)),
      lock_path_(registry.LockPath(options.name)),
      doors_path_(registry.DoorsPath(options.name)),
      decisions_(seed, options.name, &trace_) {}

runtime::OrMessage<std::unique_ptr<SystemHost>> SystemHost::Start(
    const runtime::Registry& registry, const runtime::HostOptions& options) {
  const auto seed = options.seed.empty() ? std::optional(runtime::KernelSeed())
                                         : runtime::ParseSeed(options.seed);
  if (!seed) {
    return tl::unexpected("--seed " + options.seed +
                          " is not a seed; use a number from 0 to 18446744073709551615, or the "
                          "seed that `rdmaemu run` printed");
  }
  std::unique_ptr<SystemHost> host(new SystemHost(registry, options, *seed));
  if (!options.scenario_path.empty()) {
    auto rules = runtime::ReadScenario(options.scenario_path);
    if (!rules) return tl::unexpected(rules.error());
    if (auto wrong = host->decisions_.Add(std::move(*rules))) {
      return tl::unexpected(options.scenario_path + ": " + *wrong);
    }
  }
  auto lock = registry.TryLock(options.name);
  if (!lock) {
    return tl::unexpected("host " + options.name + " is running; stop it, or use another --host");
  }
  host->lock_ = std::move(*lock);
  runtime::HostRecord record;
  record.pid = getpid();
  record.options = options;
  runtime::Registry::WriteRecord(host->lock_.get(), record);
  if (auto opened = host->trace_.Open(options, SteadyNow()); !opened) {
    return tl::unexpected(opened.error());
  }
  if (auto opened = host->Open(); !opened) return tl::unexpected(opened.error());
  return host;
}

runtime::OrMessage<void> SystemHost::Open() {
  UniqueFd doors(open(doors_path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  void* const page =
      !doors || ftruncate(doors.get(), sizeof *doors_) != 0
          ? MAP_FAILED
          : mmap(nullptr, sizeof *doors_, PROT_READ | PROT_WRITE, MAP_SHARED, doors.get(), 0);
  if (page == MAP_FAILED) return tl::unexpected(Because("cannot create " + doors_path_));
  doors_ = static_cast<layer::faults::DoorsPage*>(page);
  decisions_.SetDoors(*doors_);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  socket_path_.copy(name.sun_path, sizeof name.sun_path - 1);
  unlink(socket_path_.c_str());
  listener_.Reset(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  stop_.Reset(eventfd(0, EFD_CLOEXEC));
  if (!listener_ || !stop_ ||
      bind(listener_.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0 ||
      listen(listener_.get(), SOMAXCONN) != 0) {
    return tl::unexpected(Because("cannot listen on " + socket_path_));
  }
  // The main thread takes all signals.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  thread_ = std::thread([this] { Serve(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return {};
}

SystemHost::~SystemHost() {
  if (thread_.joinable()) {
    eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  trace_.Flush();
  if (doors_ != nullptr) {
    // Reset the page and keep it mapped, because programs that still run have mapped it.
    new (doors_) layer::faults::DoorsPage{};
    munmap(doors_, sizeof *doors_);
    unlink(doors_path_.c_str());
  }
  if (listener_) unlink(socket_path_.c_str());
  if (lock_) unlink(lock_path_.c_str());
}

void SystemHost::Serve() {
  for (;;) {
    std::vector<pollfd> watched = {{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    std::vector<uint32_t> numbers;
    for (const auto& [number, connection] : connections_) {
      watched.push_back({connection.socket.get(), POLLIN, 0});
      numbers.push_back(number);
    }
    trace_.Flush();
    timespec limit{};
    const std::optional<Time> next = decisions_.NextDeadline();
    if (next) {
      const auto left = std::max<Duration>(*next - SteadyNow(), Duration::zero()).count();
      limit = {static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
    }
    if (ppoll(watched.data(), watched.size(), next ? &limit : nullptr, nullptr) < 0) continue;
    if (watched[0].revents != 0) return;
    if (watched[1].revents != 0) Accept();
    for (size_t i = 0; i < numbers.size(); i++) {
      if (watched[i + 2].revents == 0) continue;
      if (!Read(numbers[i], connections_.at(numbers[i]))) Drop(numbers[i]);
    }
    decisions_.Expire(SteadyNow());
    SendReady();
  }
}

void SystemHost::Accept() {
  for (;;) {
    UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) return;
    ucred peer{};
    socklen_t size = sizeof peer;
    if (connections_.size() >= kMaxConnections ||
        getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
        peer.uid != geteuid()) {
      continue;
    }
    connections_.emplace(++last_number_, Connection{std::move(socket), peer.pid});
  }
}

bool SystemHost::Read(uint32_t number, Connection& connection) {
  std::vector<std::byte> buffer(sizeof(CallHeader) + sizeof(FaultWaitIn) + kMaxFaultTextBytes + 1);
  const ssize_t got = recv(connection.socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got <= 0) return false;
  const auto reply = AnswerTo(number, connection, {buffer.data(), static_cast<size_t>(got)});
  return !reply || SendTo(connection.socket.get(), *reply);
}

std::optional<Reply> SystemHost::AnswerTo(uint32_t number, const Connection& connection,
                                          std::span<const std::byte> message) {
  CallHeader header;
  if (message.size() < sizeof header) return ErrorReply(EINVAL);
  std::memcpy(&header, message.data(), sizeof header);
  const std::span<const std::byte> body = message.subspan(sizeof header);
  if (header.op == kAskMoment) {
    MomentIn in;
    if (body.size() != sizeof in) return ErrorReply(EPROTO);
    std::memcpy(&in, body.data(), sizeof in);
    return AnswerReply(
        decisions_.Ask(SteadyNow(), number, runtime::ProgramName(connection.pid), in));
  }
  if (header.op == kAwaitMoment) {
    return decisions_.Await(number) ? std::optional(Reply{}) : std::nullopt;
  }
  switch (const CallOp op{header.op}) {
    case CallOp::kFaultAdd:
    case CallOp::kFaultRemove:
    case CallOp::kFaultClear:
    case CallOp::kFaultList:
    case CallOp::kFaultRelease:
    case CallOp::kFaultWait: {
      Reply reply = decisions_.Control(SteadyNow(), number, op, body);
      decisions_.SetDoors(*doors_);
      return reply.is_late ? std::nullopt : std::optional(std::move(reply));
    }
    case CallOp::kHostStatus:
      return StatusReply();
    default:
      // Programs of an emulated host make these calls, and so do commands such as `rdmaemu stop`.
      return ErrorReply(EOPNOTSUPP);
  }
}

void SystemHost::SendReady() {
  const auto send = [&](uint32_t number, const Reply& reply) {
    const auto it = connections_.find(number);
    if (it != connections_.end() && !SendTo(it->second.socket.get(), reply)) Drop(number);
  };
  while (const auto ready = decisions_.TakeReady()) {
    send(*ready, Reply{});
  }
  while (const auto late = decisions_.TakeLate()) {
    send(static_cast<uint32_t>(late->process), late->reply);
  }
}

void SystemHost::Drop(uint32_t number) {
  decisions_.Forget(number);
  connections_.erase(number);
}

Reply SystemHost::StatusReply() const {
  return TextReply(nlohmann::json{{"name", name_},
                                  {"pid", getpid()},
                                  {"backend", "system"},
                                  {"call_version", kCallVersion},
                                  {"clients", nlohmann::json::array()},
                                  {"devices", nlohmann::json::array()}}
                       .dump());
}

}  // namespace rdmaemu::cli
