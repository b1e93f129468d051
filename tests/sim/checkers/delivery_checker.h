// Messages from one QP to another: on RC each exactly once and in order, on UC at most once and in
// order, on UD at most once in any order; whole and unchanged (IBTA 9.7.1, 9.8.2, 9.8.3).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "tests/sim/verdict.h"

namespace rdmaemu::sim {

// What a receive tells of a message. `tag` identifies it where the order does not.
struct Message {
  uint64_t tag = 0;
  uint32_t length = 0;  // bytes
  std::optional<uint32_t> immediate;
  bool write = false;  // a WRITE with immediate
  std::optional<uint32_t> invalidated;
  bool solicited = false;  // its sender asked for an event; a receive does not show it
};

class DeliveryChecker {
 public:
  using Stream = uint32_t;
  enum class Promise : uint8_t { kExactlyOnceInOrder, kAtMostOnceInOrder, kAtMostOnce };

  explicit DeliveryChecker(Verdict& verdict) : verdict_(verdict) {}

  Stream Open(Promise promise, std::string name);
  // Answers its number in the stream.
  uint64_t Sent(Stream stream, const Message& message);
  // What will arrive next on an exactly-once stream; nothing when all have arrived.
  const Message* Next(Stream stream) const;
  // A receive completed with this.
  void Arrived(Stream stream, const Message& message);
  // The sender was told that its message has arrived (RC).
  void Acknowledged(Stream stream, uint64_t number);
  // The network may have made copies of datagrams, or let some overtake others: what cannot be told
  // from a new message may come again, or late.
  void Excuse(Stream stream) { streams_.at(stream).excused = true; }
  // The receiver is gone: nobody can say what arrived.
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
