// Completions of work queues. They arrive in the order of posting, one for each signalled request,
// none twice, and none without a request. After an error everything completes as flushed, and
// nothing succeeds any more (ibv_post_send(3), ibv_poll_cq(3), IBTA 10.8.5 and 11.4.2).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "tests/sim/verdict.h"

namespace rdmaemu::sim {

class CompletionChecker {
 public:
  using Queue = uint32_t;
  enum class Ended : uint8_t { kSuccess, kError, kFlushed };
  enum class Kind : uint8_t { kSend, kReceive, kShared };

  explicit CompletionChecker(Verdict& verdict) : verdict_(verdict) {}

  Queue Open(Kind kind, std::string name);
  void Post(Queue queue, uint64_t wr_id, bool signalled);
  void Complete(Queue queue, uint64_t wr_id, Ended ended);
  // The program or one of its requests may have moved the queue's QP to ERR.
  void MayFlush(Queue queue) { queues_.at(queue).may_flush = true; }
  // All completion queues of a program were polled until they were empty. QPs take the receives of
  // a shared queue in order. A receive thus completes after all older ones, except those that QPs
  // still hold. QPs with different completion queues have no order between two polls.
  void Settled();
  // Of a shared queue: the number of receives that QPs may still hold.
  void SetHolders(Queue queue, uint32_t holders) { queues_.at(queue).holders = holders; }
  // The QP was reset or destroyed. Its outstanding work does not complete any more.
  void Close(Queue queue) { queues_.at(queue).closed = true; }
  // Returns the number of requests that must still complete.
  size_t Outstanding(Queue queue) const;
  bool Failed(Queue queue) const { return queues_.at(queue).failed; }
  // All activity is over. All signalled requests must have completed, and in a failed queue all
  // requests. `but` names receives that may wait for ever.
  void ExpectAllEnded(Queue queue);

 private:
  struct Posted {
    uint64_t wr_id;
    bool signalled;
  };
  struct State {
    Kind kind;
    std::string name;
    std::deque<Posted> posted;
    bool may_flush = false, failed = false, closed = false;
    // Of a shared queue: receives that are older than a completed one.
    size_t overtaken = 0;
    uint64_t overtaker = 0;  // the wr_id of the completed one
    uint32_t holders = 0;
  };

  void CompleteShared(State& state, uint64_t wr_id);
  void Complain(const State& state, uint64_t wr_id, const std::string& what);

  Verdict& verdict_;
  std::deque<State> queues_;
};

}  // namespace rdmaemu::sim
