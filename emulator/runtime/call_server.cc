#include "emulator/runtime/call_server.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "emulator/runtime/clock.h"
#include "emulator/runtime/epoll_tag.h"

namespace rdmaemu::runtime {
namespace {

// Returns 0 for a message without a whole header.
uint32_t OpOf(std::span<const std::byte> message) {
  CallHeader header{};
  if (message.size() >= sizeof header) std::memcpy(&header, message.data(), sizeof header);
  return header.op;
}

}  // namespace

std::string ProgramName(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/comm";
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char name[64];
  const ssize_t got = fd ? read(fd.get(), name, sizeof name) : 0;
  if (got <= 0) return {};
  return std::string(name, static_cast<size_t>(got - (name[got - 1] == '\n' ? 1 : 0)));
}

CallServer::CallServer(int epoll_fd, Parts parts)
    : epoll_fd_(epoll_fd),
      ends_(epoll_create1(EPOLL_CLOEXEC)),
      parts_(std::move(parts)),
      spare_(open("/dev/null", O_RDONLY | O_CLOEXEC)),
      buffer_(kMaxCallBytes),
      pages_(parts_.segments) {}

Status CallServer::Listen(const std::string& path) {
  sockaddr_un name{};
  if (path.size() >= sizeof name.sun_path) return Fail(ENAMETOOLONG);
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, sizeof name.sun_path - 1);
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0) {
    return Fail(errno);
  }
  epoll_event event = EventFor(EventKind::kEnds, 0);
  if (!ends_ || (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, ends_.get(), &event) != 0 &&
                 errno != EEXIST)) {  // the host listens again after Retire
    return Fail(errno);
  }
  event = EventFor(EventKind::kListener, 0);
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd.get(), &event) != 0) return Fail(errno);
  listener_ = std::move(fd);
  path_ = path;
  return {};
}

bool CallServer::Retire(Time now) {
  unlink(path_.c_str());
  Accept(now);
  if (connections() == 0) return true;
  // Listening again replaces the old socket, whose name is already unlinked. Accept has just
  // accepted the clients in its queue. The connection of a client that connects meanwhile ends
  // before a reply, and the client retries.
  return !Listen(path_).has_value();
}

void CallServer::Accept(Time now) {
  for (int i = 0; i < kMaxAcceptsPerTurn; i++) {
    UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) {
      Add(now, std::move(socket));
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EMFILE && errno != ENFILE) return;
    // Without a free descriptor, the connection would stay in the queue and keep the listener
    // readable forever.
    spare_.Reset();
    UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    spare_.Reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
}

void CallServer::Add(Time now, UniqueFd socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (connections_.size() >= kMaxConnections ||
      getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
      peer.uid != geteuid()) {
    return;
  }
  const auto others = per_process_.find(peer.pid);
  // A pid of 0 means a process of another pid namespace, which has no number in this one.
  if (peer.pid != 0 && others != per_process_.end() &&
      others->second >= kMaxConnectionsPerProcess) {
    return;
  }
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof kSendBufferBytes);
  const uint32_t number = ++last_connection_;
  epoll_event event = EventFor(EventKind::kConnection, number);
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, socket.get(), &event) != 0) return;
  Connection connection;
  connection.socket = std::move(socket);
  connection.process_fd.Reset(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
  WatchEnd(number, connection);
  connection.process =
      parts_.host.Attach(now, {static_cast<uint32_t>(peer.pid), ProgramName(peer.pid)});
  parts_.memory.AddProcess(connection.process, peer.pid);
  connection.pid = peer.pid;
  per_process_[peer.pid]++;
  connections_.emplace(number, std::move(connection));
}

// Without a pidfd (some sandboxes refuse it), the end of the last connection reports the end of the
// process. A closed socket always raises EPOLLHUP.
void CallServer::WatchEnd(uint32_t number, const Connection& connection) {
  const bool has_pidfd = static_cast<bool>(connection.process_fd);
  epoll_event event = EventFor(EventKind::kClientExit, number, has_pidfd ? uint32_t{EPOLLIN} : 0);
  const UniqueFd& watched = has_pidfd ? connection.process_fd : connection.socket;
  epoll_ctl(ends_.get(), EPOLL_CTL_ADD, watched.get(), &event);
}

bool CallServer::HearEnds(Time now) {
  return RealNow() - ends_heard_at_ >= kLongestUnheard && HandleEnds(now);
}

bool CallServer::HandleEnds(Time now) {
  ends_heard_at_ = RealNow();
  std::array<epoll_event, 64> ends;
  bool found = false;
  for (int ready = static_cast<int>(ends.size()); ready == static_cast<int>(ends.size());) {
    ready = epoll_wait(ends_.get(), ends.data(), static_cast<int>(ends.size()), 0);
    for (int i = 0; i < ready; i++) ProcessEnded(now, NumberOf(ends[static_cast<size_t>(i)]));
    found |= ready > 0;
  }
  return found;
}

int CallServer::Kill(const Connection& connection) {
  const int process = connection.process_fd.get();
  if (!connection.process_fd) return EOPNOTSUPP;  // this system has no pidfds
  if (syscall(SYS_pidfd_send_signal, process, SIGKILL, nullptr, 0) != 0 && errno != ESRCH) {
    return errno;
  }
  pollfd end{process, POLLIN, 0};
  int ready;
  do {
    ready = poll(&end, 1, static_cast<int>(kLongestKill.count()));
  } while (ready < 0 && errno == EINTR);
  return ready == 1 ? 0 : ETIMEDOUT;
}

bool CallServer::KillPrograms(uint32_t number) {
  bool is_killed = false;
  while (const std::optional<ProcessId> process = parts_.host.TakeEnding()) {
    const auto it = std::ranges::find(connections_, *process,
                                      [](const auto& each) { return each.second.process; });
    if (it == connections_.end()) continue;
    if (const int error = Kill(it->second); error != 0) {
      parts_.cannot_end(*process, error);
      continue;
    }
    killed_.push_back(it->first);
    is_killed |= it->first == number;
  }
  return is_killed;
}

bool CallServer::EndPrograms(Time now) {
  bool found = false;
  // The end of a program may make rules fire that end other programs.
  for (KillPrograms(); !killed_.empty(); KillPrograms()) {
    const uint32_t number = killed_.back();
    killed_.pop_back();
    // HearEnds may have handled the end already.
    const auto it = connections_.find(number);
    if (it != connections_.end() && !it->second.ended) ProcessEnded(now, number);
    found = true;
  }
  return found;
}

void CallServer::Serve(Time now, uint32_t number) {
  const auto it = connections_.find(number);
  if (it == connections_.end()) return;
  Connection& connection = it->second;
  for (int i = 0; i < kMaxCallsPerTurn; i++) {
    // MSG_TRUNC returns the length of the message as sent. The kernel closes descriptors that a
    // client sends with it.
    const ssize_t got =
        recv(connection.socket.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT | MSG_TRUNC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (HearEnds(now) && !connections_.contains(number)) return;
    // An ended process makes no calls. Its children use separate connections.
    if (connection.ended) return Drop(now, number);
    if (got <= 0 || static_cast<size_t>(got) > buffer_.size()) return Drop(now, number);
    const std::span<const std::byte> message(buffer_.data(), static_cast<size_t>(got));
    const Reply reply = Answer(now, number, connection, message, kSocket);
    if (KillPrograms(number)) break;
    if (!reply.is_late && !SendReply(number, connection, reply)) return Drop(now, number);
  }
  EndPrograms(now);
}

Reply CallServer::Answer(Time now, uint32_t number, Connection& connection,
                         std::span<const std::byte> message, uint32_t caller) {
  const uint32_t op = OpOf(message);
  const bool reads_files = !connection.is_client && op == static_cast<uint32_t>(CallOp::kReadFile);
  if (reads_files != connection.reads_files) readers_ += reads_files ? 1 : -size_t{1};
  connection.reads_files = reads_files;
  if (op == static_cast<uint32_t>(CallOp::kShareCallPage)) {
    return SharePage(number, connection);
  }
  if (op == static_cast<uint32_t>(CallOp::kClock)) {
    return AskClock(message.subspan(sizeof(CallHeader)));
  }
  if (op == static_cast<uint32_t>(CallOp::kShareBuffers)) {
    return ShareBuffers(connection, message.subspan(sizeof(CallHeader)));
  }
  Reply reply = parts_.host.Call(now, connection.process, message, caller);
  if (op == static_cast<uint32_t>(CallOp::kHostStatus) && parts_.complete_status) {
    parts_.complete_status(reply);
  }
  if (!connection.is_client) {
    const GroupId group = parts_.host.GroupOf(connection.process);
    if (group != GroupId::kNone) {
      connection.is_client = ever_had_client_ = true;
      clients_++;
    }
  }
  return reply;
}

Reply CallServer::AskClock(std::span<const std::byte> body) {
  ClockIn in;
  Reply reply;
  if (body.size() != sizeof in) {
    reply.error = EINVAL;
    return reply;
  }
  std::memcpy(&in, body.data(), sizeof in);
  const Result<ClockOut> out = parts_.clock(in);
  if (!out) {
    reply.error = out.error().code;
    return reply;
  }
  reply.body.resize(sizeof *out);
  std::memcpy(reply.body.data(), &*out, sizeof *out);
  return reply;
}

Reply CallServer::SharePage(uint32_t number, const Connection& connection) {
  if (!connection.is_client) return {.error = EPERM, .body = {}, .descriptors = {}};
  const Result<SegmentId> page = pages_.Share(number);
  if (!page) return {.error = page.error().code, .body = {}, .descriptors = {}};
  return {.error = 0, .body = {}, .descriptors = {*page}};
}

Reply CallServer::ShareBuffers(Connection& connection, std::span<const std::byte> body) {
  const auto failed = [](int error) {
    return Reply{.error = error, .body = {}, .descriptors = {}};
  };
  ShareBuffersIn in;
  if (!connection.is_client) return failed(EPERM);
  if (body.size() != sizeof in) return failed(EINVAL);
  std::memcpy(&in, body.data(), sizeof in);
  if (in.address > UINT64_MAX - BufferArena::kBytes) return failed(EINVAL);
  if (connection.buffers) return failed(EALREADY);
  const Result<Segment> segment = parts_.segments.CreateSegment(BufferArena::kBytes);
  if (!segment) return failed(segment.error().code);
  if (!parts_.memory.ShareBuffers(connection.process, in.address, segment->bytes)) {
    parts_.segments.DestroySegment(segment->id);
    return failed(EALREADY);
  }
  connection.buffers = segment->id;
  return {.error = 0, .body = {}, .descriptors = {segment->id}};
}

void CallServer::ForgetBuffers(Connection& connection) {
  if (!connection.buffers) return;
  parts_.segments.DestroySegment(*connection.buffers);
  connection.buffers.reset();
}

void CallServer::ServePage(Time now, uint32_t number) {
  pages_.Rang(number, [&](uint32_t who, uint32_t page, std::span<const std::byte> message) {
    return AnswerPage(now, who, page, message);
  });
  DropBroken(now);
  EndPrograms(now);
}

CallPages::Served CallServer::ServePages(Time now) {
  const CallPages::Served served =
      pages_.Serve([&](uint32_t who, uint32_t page, std::span<const std::byte> message) {
        return AnswerPage(now, who, page, message);
      });
  DropBroken(now);
  EndPrograms(now);
  return served;
}

std::optional<Reply> CallServer::AnswerPage(Time now, uint32_t number, uint32_t page,
                                            std::span<const std::byte> message) {
  Connection& connection = connections_.at(number);
  // Its late reply would go to the socket.
  if (OpOf(message) == static_cast<uint32_t>(CallOp::kFaultWait)) {
    return Reply{.error = EOPNOTSUPP, .body = {}, .descriptors = {}};
  }
  Reply reply = Answer(now, number, connection, message, kFirstPage + page);
  if (KillPrograms(number) || reply.is_late) return std::nullopt;
  if (reply.descriptors.empty()) return reply;
  broken_.push_back(number);
  return std::nullopt;
}

void CallServer::SendLate(Time now) {
  while (const std::optional<LateReply> late = parts_.host.TakeLateReply()) {
    const auto it = std::ranges::find(connections_, late->process,
                                      [](const auto& each) { return each.second.process; });
    if (it == connections_.end()) continue;
    const uint32_t number = it->first;
    if (!SendLateReply(number, it->second, *late)) Drop(now, number);
  }
}

bool CallServer::SendLateReply(uint32_t number, Connection& connection, const LateReply& late) {
  if (late.caller == kSocket) return SendReply(number, connection, late.reply);
  if (!late.reply.descriptors.empty()) return false;
  pages_.AnswerLate(number, late.caller - kFirstPage, late.reply);
  return true;
}

void CallServer::DropBroken(Time now) {
  while (!broken_.empty()) {
    const uint32_t number = broken_.back();
    broken_.pop_back();
    Drop(now, number);
  }
}

int CallServer::DescriptorFor(uint32_t number, Connection& connection,
                              const ReplyDescriptor& what) {
  if (const auto* counter = std::get_if<CounterId>(&what)) {
    return parts_.counters.Descriptor(*counter);
  }
  if (const auto* segment = std::get_if<SegmentId>(&what)) {
    return parts_.segments.Descriptor(*segment);
  }
  if (const auto* foreign = std::get_if<ForeignDescriptor>(&what)) return **foreign;
  if (!connection.doorbell) {
    // Each connection has its own doorbell, so that no client can consume another client's wake-up.
    // The doorbell is edge-triggered, so the host never reads it, and it never fills up.
    connection.doorbell.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    epoll_event event = EventFor(EventKind::kDoorbell, number, EPOLLIN | EPOLLET);
    if (!connection.doorbell ||
        epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, connection.doorbell.get(), &event) != 0) {
      return -1;
    }
  }
  return connection.doorbell.get();
}

bool CallServer::SendReply(uint32_t number, Connection& connection, const Reply& reply) {
  ReplyHeader header{reply.error, static_cast<uint32_t>(reply.body.size()),
                     static_cast<uint32_t>(reply.descriptors.size()), 0};
  std::array<int, kMaxReplyDescriptors> descriptors;
  if (reply.descriptors.size() > descriptors.size()) return false;
  for (size_t i = 0; i < reply.descriptors.size(); i++) {
    descriptors[i] = DescriptorFor(number, connection, reply.descriptors[i]);
    if (descriptors[i] < 0) return false;
  }
  iovec vectors[2] = {{&header, sizeof header},
                      {const_cast<std::byte*>(reply.body.data()), reply.body.size()}};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof descriptors)> control{};
  msghdr message{};
  message.msg_iov = vectors;
  message.msg_iovlen = 2;
  if (!reply.descriptors.empty()) {
    const size_t bytes = reply.descriptors.size() * sizeof(int);
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(rights), descriptors.data(), bytes);
  }
  ssize_t sent;
  do {
    sent = sendmsg(connection.socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent >= 0;
}

void CallServer::ProcessEnded(Time now, uint32_t number) {
  const auto it = connections_.find(number);
  if (it == connections_.end()) return;
  Connection& connection = it->second;
  pollfd poll_end{connection.socket.get(), POLLRDHUP, 0};
  if (!connection.is_client || poll(&poll_end, 1, 0) != 0) return Drop(now, number);
  connection.process_fd.Reset();
  pages_.Remove(number);
  CountOut(connection.pid);
  connection.pid = 0;
  connection.ended = true;
  parts_.memory.ProcessEnded(connection.process);
  ForgetBuffers(connection);
  parts_.host.ProcessEnded(now, connection.process);
}

void CallServer::CountOut(pid_t pid) {
  const auto it = per_process_.find(pid);
  if (it != per_process_.end() && --it->second == 0) per_process_.erase(it);
}

void CallServer::Drop(Time now, uint32_t number) {
  const auto it = connections_.find(number);
  if (it == connections_.end()) return;
  parts_.host.Detach(now, it->second.process);
  parts_.memory.RemoveProcess(it->second.process);
  ForgetBuffers(it->second);
  if (it->second.is_client) clients_--;
  if (it->second.reads_files) readers_--;
  if (!it->second.ended) CountOut(it->second.pid);
  pages_.Remove(number);
  connections_.erase(it);
}

void CallServer::DropAll(Time now) {
  while (!connections_.empty()) Drop(now, connections_.begin()->first);
}

}  // namespace rdmaemu::runtime
