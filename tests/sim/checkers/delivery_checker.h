// Messages from one QP to another. RC delivers each exactly once and in order, UC at most once and
// in order, UD at most once in any order. Each message is complete and unchanged (IBTA 9.7.1,
// 9.8.2, 9.8.3).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "tests/sim/verdict.h"

namespace rdmaemu::sim {

// A receive's information about a message. `tag` identifies the message if the order does not.
struct Message {
  uint64_t tag = 0;
  uint32_t length = 0;  // bytes
  std::optional<uint32_t> immediate;
  bool write = false;  // a WRITE with immediate
  std::optional<uint32_t> invalidated;
  bool solicited = false;  // its sender requested an event; a receive does not show it
};

class DeliveryChecker {
 public:
  using Stream = uint32_t;
  enum class Promise : uint8_t { kExactlyOnceInOrder, kAtMostOnceInOrder, kAtMostOnce };

  explicit DeliveryChecker(Verdict& verdict) : verdict_(verdict) {}

  Stream Open(Promise promise, std::string name);
  // Returns its number in the stream.
  uint64_t Sent(Stream stream, const Message& message);
  // Returns the next message of an exactly-once stream; nullptr when all have arrived.
  const Message* Next(Stream stream) const;
  // A receive completed with this message.
  void Arrived(Stream stream, const Message& message);
  // The sender's completion says that its message has arrived (RC).
  void Acknowledged(Stream stream, uint64_t number);
  // The network may have copied or reordered datagrams. A message that looks like a new one may be
  // repeated or late.
  void Excuse(Stream stream) { streams_.at(stream).excused = true; }
  // The receiver has ended, so nothing can be checked any more.
  void Close(Stream stream) { streams_.at(stream).closed = true; }
  uint64_t arrived(Stream stream) const { return streams_.at(stream).arrived; }

 private:
  struct Entry {
    Message message;
    bool here = false;
  };
  struct State {
    Promise promise;
    std::string name;
    std::deque<Entry> sent;
    uint64_t arrived = 0;
    bool excused = false, closed = false;
  };

  void Complain(const State& state, const Message& message, const std::string& what);
  static bool Same(const Message& a, const Message& b);

  Verdict& verdict_;
  std::deque<State> streams_;
};

}  // namespace rdmaemu::sim
