// What the two processes tell each other beside the RDMA connection: orders and reports on a Unix
// socket, and shared memory and eventfds for the hand-overs between processes that are references.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace rdma_bench {

enum class Task : uint32_t {
  kConnect,        // accept `qps` connections
  kDisconnect,     // take them down
  kReceive,        // take messages until one with immediate data came on every QP
  kEcho,           // answer each message with one, until one with immediate data came
  kAcceptAll,      // accept and drop connections until kStop
  kYieldPingPong,  // references, see reference.h
  kWakePingPong,
  kUdpSink,
  kTcpAcceptAll,  // until kStop
  kStop,
  kQuit,
};

struct Order {
  Task task;
  uint32_t qps = 1;
  uint32_t message_bytes = 0;
  uint32_t block_on_events = 0;
};

struct Report {
  uint64_t messages = 0;
  uint16_t port = 0;  // kUdpSink and kTcpAcceptAll, host byte order
};

// Of the server; sent once, when the client has come.
struct ServerFacts {
  int32_t pid;
  uint64_t buffer;  // address in the server's process
  uint64_t buffer_bytes;
  uint32_t rkey;
  uint16_t rdma_port;  // where it listens by rdma_cm, host byte order
};

// Words that both processes map.
struct SharedWords {
  alignas(64) std::atomic<uint32_t> ping;
  alignas(64) std::atomic<uint32_t> pong;
};

class Control {
 public:
  // Waits for the one client on a new Unix socket.
  static Control Serve(const std::string& path);
  // Waits until the server listens there.
  static Control Connect(const std::string& path);
  ~Control();
  Control(Control&& other);
  Control(const Control&) = delete;

  template <class T>
  void Send(const T& value) {
    SendBytes(&value, sizeof value);
  }
  // Throws Failure when the other side has gone.
  template <class T>
  T Receive() {
    T value;
    ReceiveBytes(&value, sizeof value);
    return value;
  }
  // Whether something can be received now.
  bool Readable() const;
  int fd() const { return fd_; }

  SharedWords& words() const { return *words_; }
  int ping_event() const { return events_[0]; }
  int pong_event() const { return events_[1]; }

 private:
  explicit Control(int fd) : fd_(fd) {}
  void SendBytes(const void* data, size_t bytes);
  void ReceiveBytes(void* data, size_t bytes);
  void MapWords(int memory);

  int fd_;
  int events_[2] = {-1, -1};
  SharedWords* words_ = nullptr;
};

}  // namespace rdma_bench
