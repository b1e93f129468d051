// Small messages without RDMA: a ring in shared memory, and a Unix socket.
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "bench/rdma/reference.h"

namespace rdma_bench {
namespace {

// As many as the benchmark posts by one call.
constexpr uint32_t kListMessages = 16;

class MessageSocket {
 public:
  MessageSocket() : fd_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    Require(fd_ >= 0, "socket");
  }
  explicit MessageSocket(int accepted) : fd_(accepted) { Require(fd_ >= 0, "accept"); }
  ~MessageSocket() { close(fd_); }
  MessageSocket(const MessageSocket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

sockaddr_un PathOf(const std::string& control_path) {
  const std::string path = control_path + ".messages";
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  Require(path.size() < sizeof name.sun_path, "a shorter path of the control socket");
  std::memcpy(name.sun_path, path.c_str(), path.size());
  return name;
}

}  // namespace

double RingRateFor(const Buffer& own, Control& control, double seconds) {
  MessageRing& ring = control.words().ring;
  ring.produced = ring.consumed = 0;
  ring.ended = false;
  control.Send(Order{.task = Task::kRingSink});
  control.Receive<Report>();
  Walk messages(own.size(), kListMessages * kRateMessageBytes);
  uint32_t produced = 0;
  const double begin = NowSeconds();
  while (NowSeconds() - begin < seconds) {
    while (produced - ring.consumed.load(std::memory_order_acquire) >
           MessageRing::kSlots - kListMessages) {
      sched_yield();
    }
    const std::byte* const list = own.data() + messages.Next();
    for (uint32_t i = 0; i < kListMessages; i++, produced++) {
      std::memcpy(ring.slots[produced % MessageRing::kSlots], list + i * kRateMessageBytes,
                  kRateMessageBytes);
    }
    ring.produced.store(produced, std::memory_order_release);
  }
  ring.ended = true;
  const auto received = static_cast<double>(control.Receive<Report>().messages);
  return received / (NowSeconds() - begin);
}

void RingSink(Control& control, const Buffer& own) {
  MessageRing& ring = control.words().ring;
  Walk places(own.size(), kRateMessageBytes);
  control.Send(Report{});
  for (uint32_t consumed = 0;;) {
    const bool ended = ring.ended;  // read first: all messages before it are visible then
    const uint32_t produced = ring.produced.load(std::memory_order_acquire);
    if (consumed == produced) {
      if (ended) return control.Send(Report{.messages = consumed});
      sched_yield();
      continue;
    }
    for (; consumed != produced; consumed++) {
      std::memcpy(own.data() + places.Next(), ring.slots[consumed % MessageRing::kSlots],
                  kRateMessageBytes);
    }
    ring.consumed.store(consumed, std::memory_order_release);
  }
}

double UnixSocketRateFor(const Buffer& own, Control& control, const std::string& control_path,
                         double seconds) {
  control.Send(Order{.task = Task::kUnixSocketSink});
  control.Receive<Report>();
  MessageSocket socket;
  const sockaddr_un name = PathOf(control_path);
  Require(connect(socket.fd(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0,
          "connecting to the message socket");
  Walk messages(own.size(), kRateMessageBytes);
  const double begin = NowSeconds();
  while (NowSeconds() - begin < seconds) {
    for (uint32_t i = 0; i < kListMessages; i++) {
      Require(send(socket.fd(), own.data() + messages.Next(), kRateMessageBytes, 0) ==
                  ssize_t{kRateMessageBytes},
              "sending a message");
    }
  }
  Require(shutdown(socket.fd(), SHUT_WR) == 0, "shutdown");
  const auto received = static_cast<double>(control.Receive<Report>().messages);
  return received / (NowSeconds() - begin);
}

void UnixSocketSink(Control& control, const Buffer& own, const std::string& control_path) {
  const sockaddr_un name = PathOf(control_path);
  uint64_t received = 0;
  {
    MessageSocket listener;
    Require(bind(listener.fd(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0 &&
                listen(listener.fd(), 1) == 0,
            "listening for messages");
    control.Send(Report{});
    const MessageSocket socket(accept(listener.fd(), nullptr, nullptr));
    unlink(name.sun_path);
    Walk places(own.size(), kRateMessageBytes);
    for (;; received++) {
      const ssize_t got = recv(socket.fd(), own.data() + places.Next(), kRateMessageBytes, 0);
      Require(got >= 0, "receiving a message");
      if (got == 0) break;
    }
  }
  control.Send(Report{.messages = received});
}

}  // namespace rdma_bench
