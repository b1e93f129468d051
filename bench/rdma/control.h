// The communication of the two processes besides the RDMA connection. Orders and reports use a Unix
// socket. Shared memory and eventfds serve the ping-pongs between processes that are references.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace rdma_bench {

enum class Task : uint32_t {
  kConnect,        // accept `qps` connections
  kDisconnect,     // disconnect them
  kReceive,        // receive until a message with immediate data on every QP
  kEcho,           // answer each message until one has immediate data
  kAcceptAll,      // accept and drop connections until kStop
  kYieldPingPong,  // references, see reference.h
  kWakePingPong,
  kUdpSink,
  kTcpAcceptAll,  // until kStop
  kRingSink,
  kUnixSocketSink,
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

// The server's facts, which it sends once, after the client has connected.
struct ServerFacts {
  int32_t pid;
  uint64_t buffer;  // address in the server's process
  uint64_t buffer_bytes;
  uint32_t rkey;
  uint16_t rdma_port;  // rdma_cm listening port, host byte order
};

// The size of the messages of which the benchmark measures the rate.
constexpr size_t kRateMessageBytes = 64;

// A queue with one producer and one consumer. Both numbers count messages and wrap around.
struct MessageRing {
  static constexpr uint32_t kSlots = 4096;  // the receives that the benchmark posts on one QP
  alignas(64) std::atomic<uint32_t> produced;
  std::atomic<bool> ended;
  alignas(64) std::atomic<uint32_t> consumed;
  alignas(64) std::byte slots[kSlots][kRateMessageBytes];
};

// Memory that both processes map.
struct SharedWords {
  alignas(64) std::atomic<uint32_t> ping;
  alignas(64) std::atomic<uint32_t> pong;
  MessageRing ring;
};

class Control {
 public:
  // Waits for the single client on a new Unix socket.
  static Control Serve(const std::string& path);
  // Connects to the server, and waits until it listens.
  static Control Connect(const std::string& path);
  ~Control();
  Control(Control&& other);
  Control(const Control&) = delete;

  template <class T>
  void Send(const T& value) {
    SendBytes(&value, sizeof value);
  }
  // Throws Failure if the other process has ended.
  template <class T>
  T Receive() {
    T value;
    ReceiveBytes(&value, sizeof value);
    return value;
  }
  // Returns true if something can be received now.
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
