#include "bench/rdma/reference.h"

#include <arpa/inet.h>
#include <sched.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace rdma_bench {
namespace {

// Replaces the number of a round trip and ends the ping-pong.
constexpr uint32_t kEnd = UINT32_MAX;

// Pins this thread to one processor while the object exists.
class Pinned {
 public:
  // The first or the last processor that the process may use.
  enum class Where { kFirst, kLast };
  explicit Pinned(Where where) {
    Require(sched_getaffinity(0, sizeof before_, &before_) == 0, "sched_getaffinity");
    int chosen = -1;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
      if (!CPU_ISSET(cpu, &before_)) continue;
      chosen = cpu;
      if (where == Where::kFirst) break;
    }
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(chosen, &one);
    Require(sched_setaffinity(0, sizeof one, &one) == 0, "sched_setaffinity");
  }
  ~Pinned() { sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_;
};

template <class Move>
double RateFor(size_t span, size_t message_bytes, double seconds, Move move) {
  Walk walk(span, message_bytes);
  uint64_t messages = 0;
  const double begin = NowSeconds();
  double now = begin;
  for (; now - begin < seconds; now = NowSeconds(), messages++) move(walk.Next());
  return static_cast<double>(messages * message_bytes) / (now - begin);
}

// Orders the server's side, then runs the client's side for `seconds`. `trip` makes one round trip.
// With kEnd as its number it only makes the first half.
template <class Trip>
std::vector<double> PingPong(Control& control, Task task, double seconds, Pinned::Where where,
                             Trip trip) {
  control.words().ping = 0;
  control.words().pong = 0;
  control.Send(Order{.task = task});
  control.Receive<Report>();
  std::vector<double> one_way_us;
  {
    const Pinned pinned(where);
    const double begin = NowSeconds();
    double before = begin;
    for (uint32_t number = 1; before - begin < seconds; number++) {
      trip(number);
      const double now = NowSeconds();
      one_way_us.push_back((now - before) * 1e6 / 2);
      before = now;
    }
    trip(kEnd);
  }
  control.Receive<Report>();
  std::sort(one_way_us.begin(), one_way_us.end());
  return one_way_us;
}

void Wait(int event) {
  uint64_t value;
  Require(read(event, &value, sizeof value) == sizeof value, "read of an eventfd");
}
void Wake(int event) {
  const uint64_t value = 1;
  Require(write(event, &value, sizeof value) == sizeof value, "write to an eventfd");
}

}  // namespace

sockaddr_in SocketAddress(const std::string& address, uint16_t port) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = htons(port);
  Require(inet_pton(AF_INET, address.c_str(), &result.sin_addr) == 1, "an IPv4 address");
  return result;
}

double MemcpyFor(const Buffer& from, const Buffer& to, size_t message_bytes, double seconds) {
  return RateFor(from.size(), message_bytes, seconds, [&](size_t place) {
    std::memcpy(to.data() + place, from.data() + place, message_bytes);
    asm volatile("" ::: "memory");
  });
}

double ProcessVmFor(const Buffer& own, const ServerFacts& server, bool write, size_t message_bytes,
                    double seconds) {
  const auto move = write ? process_vm_writev : process_vm_readv;
  return RateFor(own.size(), message_bytes, seconds, [&](size_t place) {
    const iovec local{own.data() + place, message_bytes};
    const iovec remote{reinterpret_cast<void*>(server.buffer + place), message_bytes};
    Require(move(server.pid, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(message_bytes),
            write ? "process_vm_writev" : "process_vm_readv");
  });
}

std::vector<double> YieldPingPongFor(Control& control, double seconds) {
  SharedWords& words = control.words();
  return PingPong(control, Task::kYieldPingPong, seconds, Pinned::Where::kFirst,
                  [&](uint32_t number) {
                    words.ping.store(number, std::memory_order_release);
                    if (number == kEnd) return;
                    while (words.pong.load(std::memory_order_acquire) != number) sched_yield();
                  });
}

void YieldPong(Control& control) {
  const Pinned pinned(Pinned::Where::kFirst);
  SharedWords& words = control.words();
  control.Send(Report{});
  for (uint32_t last = 0; last != kEnd;) {
    const uint32_t number = words.ping.load(std::memory_order_acquire);
    if (number == last) {
      sched_yield();
      continue;
    }
    words.pong.store(number, std::memory_order_release);
    last = number;
  }
  control.Send(Report{});
}

std::vector<double> WakePingPongFor(Control& control, double seconds) {
  cpu_set_t allowed;
  Require(sched_getaffinity(0, sizeof allowed, &allowed) == 0, "sched_getaffinity");
  if (CPU_COUNT(&allowed) < 2) return {};
  SharedWords& words = control.words();
  return PingPong(control, Task::kWakePingPong, seconds, Pinned::Where::kLast,
                  [&](uint32_t number) {
                    words.ping.store(number, std::memory_order_release);
                    Wake(control.ping_event());
                    if (number != kEnd) Wait(control.pong_event());
                  });
}

void WakePong(Control& control) {
  const Pinned pinned(Pinned::Where::kFirst);
  control.Send(Report{});
  for (;;) {
    Wait(control.ping_event());
    if (control.words().ping.load(std::memory_order_acquire) == kEnd) break;
    Wake(control.pong_event());
  }
  control.Send(Report{});
}

}  // namespace rdma_bench
