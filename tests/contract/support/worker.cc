#include "tests/contract/support/worker.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/contract/support/arena.h"
#include "tests/contract/support/environment.h"
#include "tests/contract/support/state.h"

// The address at which the linker placed this program. A step's offset from it is the same in every
// process.
extern "C" const char __ehdr_start[];

namespace rdma_contract {
namespace {

// Longer than any step may take. A worker that is silent for so long hangs, and the test fails.
constexpr int kStepLimit_ms = 150'000;

int nursery = -1;  // the socket to the nursery

using Raw = void (*)(State&, void*, const void*, void*);

struct Order {  // a step sent over a socket, both functions as offsets; the arguments follow
  uintptr_t raw;
  uintptr_t step;
  size_t argument_bytes;
  size_t result_bytes;
};

uintptr_t Base() { return reinterpret_cast<uintptr_t>(__ehdr_start); }

bool SendAll(int socket, const void* data, size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(socket, next, bytes, MSG_NOSIGNAL);
    if (sent <= 0 && errno != EINTR) return false;
    if (sent > 0) next += sent, bytes -= static_cast<size_t>(sent);
  }
  return true;
}

// `limit_ms` -1 waits for ever.
bool ReceiveAll(int socket, void* data, size_t bytes, int limit_ms) {
  char* next = static_cast<char*>(data);
  while (bytes > 0) {
    pollfd waiting{socket, POLLIN, 0};
    const int ready = poll(&waiting, 1, limit_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t got = recv(socket, next, bytes, 0);
    if (got == 0 || (got < 0 && errno != EINTR)) return false;
    if (got > 0) next += got, bytes -= static_cast<size_t>(got);
  }
  return true;
}

// The main loop of a worker process: it reads steps and writes results until the test closes the
// socket.
[[noreturn]] void Serve(int socket) {
  const pid_t pid = getpid();
  if (!SendAll(socket, &pid, sizeof pid)) _exit(1);
  {
    State state;
    Order order;
    std::vector<std::max_align_t> arguments, result;
    while (ReceiveAll(socket, &order, sizeof order, -1)) {
      arguments.resize(order.argument_bytes / sizeof(std::max_align_t) + 1);
      result.assign(order.result_bytes / sizeof(std::max_align_t) + 1, {});
      if (!ReceiveAll(socket, arguments.data(), order.argument_bytes, -1)) break;
      const auto raw = reinterpret_cast<Raw>(Base() + order.raw);
      raw(state, reinterpret_cast<void*>(Base() + order.step), arguments.data(), result.data());
      if (!SendAll(socket, result.data(), order.result_bytes)) break;
    }
  }
  _exit(0);
}

[[noreturn]] void ExecuteOnThePeersMachine(int socket, int arena_fd) {
  BecomeThePeersMachine();
  if (fcntl(socket, F_SETFD, 0) != 0) _exit(1);
  execl("/proc/self/exe", "worker", "--worker", std::to_string(socket).c_str(),
        std::to_string(arena_fd).c_str(), nullptr);
  _exit(1);
}

[[noreturn]] void RunNursery(int orders, int arena_fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGCHLD, SIG_IGN);
  for (;;) {
    Place place;
    iovec part{&place, sizeof place};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (recvmsg(orders, &message, 0) <= 0) _exit(0);
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header == nullptr) continue;
    int socket;
    memcpy(&socket, CMSG_DATA(header), sizeof socket);
    if (fork() == 0) {
      close(orders);
      signal(SIGCHLD, SIG_DFL);
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (place == Place::kPeersMachine && TwoHosts()) ExecuteOnThePeersMachine(socket, arena_fd);
      Serve(socket);
    }
    close(socket);
  }
}

class HereWorker : public Worker {
 public:
  ~HereWorker() override {
    if (thread_.joinable()) thread_.join();
  }
  pid_t pid() const override { return getpid(); }
  void Kill() override { throw std::logic_error("this process is not to be killed"); }
  bool alive() const override { return true; }

 protected:
  void Execute(Raw raw, void* step, const void* arguments, size_t, void* result, size_t) override {
    raw(state_, step, arguments, result);
  }
  void Start(Raw raw, void* step, const void* arguments, size_t argument_bytes,
             size_t result_bytes) override {
    arguments_.resize(argument_bytes / sizeof(std::max_align_t) + 1);
    memcpy(arguments_.data(), arguments, argument_bytes);
    result_.assign(result_bytes / sizeof(std::max_align_t) + 1, {});
    thread_ = std::thread([=, this] { raw(state_, step, arguments_.data(), result_.data()); });
  }
  void Wait(void* result, size_t result_bytes) override {
    thread_.join();
    memcpy(result, result_.data(), result_bytes);
  }

 private:
  State state_;
  std::vector<std::max_align_t> arguments_, result_;
  std::thread thread_;
};

class ProcessWorker : public Worker {
 public:
  explicit ProcessWorker(Place place) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
      throw std::runtime_error("no socket for a worker");
    iovec part{&place, sizeof place};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &pair[1], sizeof(int));
    const bool sent = sendmsg(nursery, &message, MSG_NOSIGNAL) > 0;
    close(pair[1]);
    socket_ = pair[0];
    if (!sent || !ReceiveAll(socket_, &pid_, sizeof pid_, kStepLimit_ms))
      throw std::runtime_error("no worker process");
  }
  ~ProcessWorker() override {
    if (!alive_) return;
    // The other side destroys its State without output, then its process ends. This side sees EOF.
    shutdown(socket_, SHUT_WR);
    WaitForEnd();
    close(socket_);
  }
  pid_t pid() const override { return pid_; }
  void Kill() override {
    kill(pid_, SIGKILL);
    WaitForEnd();
    close(socket_);
    alive_ = false;
  }
  bool alive() const override { return alive_; }

 protected:
  void Execute(Raw raw, void* step, const void* arguments, size_t argument_bytes, void* result,
               size_t result_bytes) override {
    Start(raw, step, arguments, argument_bytes, result_bytes);
    Wait(result, result_bytes);
  }
  void Start(Raw raw, void* step, const void* arguments, size_t argument_bytes,
             size_t result_bytes) override {
    const Order order{reinterpret_cast<uintptr_t>(raw) - Base(),
                      reinterpret_cast<uintptr_t>(step) - Base(), argument_bytes, result_bytes};
    if (!SendAll(socket_, &order, sizeof order) || !SendAll(socket_, arguments, argument_bytes))
      throw std::runtime_error("the worker process is gone");
  }
  void Wait(void* result, size_t result_bytes) override {
    if (!ReceiveAll(socket_, result, result_bytes, kStepLimit_ms))
      throw std::runtime_error("the worker process died or hangs in a step");
  }

 private:
  // The descriptors of a process close one after the other. The process has ended when it is no
  // process any more.
  void WaitForEnd() {
    char byte;
    pollfd waiting{socket_, POLLIN, 0};
    if (poll(&waiting, 1, kStepLimit_ms) > 0) (void)!recv(socket_, &byte, 1, 0);
    if (kill(pid_, 0) == 0) kill(pid_, SIGKILL);
    for (int waited_ms = 0; kill(pid_, 0) == 0 && waited_ms < kStepLimit_ms; ++waited_ms)
      poll(nullptr, 0, 1);
  }

  int socket_ = -1;
  pid_t pid_ = 0;
  bool alive_ = true;
};

}  // namespace

std::unique_ptr<Worker> StartWorker(Place place) {
  if (place == Place::kThisProcess) return std::make_unique<HereWorker>();
  return std::make_unique<ProcessWorker>(place);
}

void ServeAnew(int socket, int arena_fd) {
  MapArenaOf(arena_fd);
  Serve(socket);
}

void StartNursery(int arena_fd) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) abort();
  const pid_t pid = fork();
  if (pid < 0) abort();
  if (pid == 0) {
    close(pair[0]);
    RunNursery(pair[1], arena_fd);
  }
  close(pair[1]);
  nursery = pair[0];
}

}  // namespace rdma_contract
