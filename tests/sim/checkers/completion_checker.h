// Completions of work queues: in the order of posting, one for each signalled request, none twice,
// none for what was not posted; after an error everything completes, flushed, and nothing succeeds
// any more (ibv_post_send(3), ibv_poll_cq(3), IBTA 10.8.5 and 11.4.2).
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
  // The program, or something it asked for, may have taken the queue's QP into ERR.
  void MayFlush(Queue queue) { queues_.at(queue).may_flush = true; }
  // All completion queues of a program were polled until they were empty. QPs take the receives of
  // a shared queue in order, so that one completes after all older ones but those that QPs still
  // hold. QPs with different completion queues complete in no order between two polls.
  void Settled();
  // Of a shared queue: how many receives may be held back by QPs that are at them.
  void SetHolders(Queue queue, uint32_t holders) { queues_.at(queue).holders = holders; }
  // Reset or destroyed: what is outstanding does not complete any more.
  void Close(Queue queue) { queues_.at(queue).closed = true; }
  // Requests that ought to complete one day.
  size_t Outstanding(Queue queue) const;
  bool Failed(Queue queue) const { return queues_.at(queue).failed; }
  // Nothing moves any more: signalled requests must all have completed, in a failed queue all.
  // `but` names receives, which may wait for ever.
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
    // Of a shared queue: receives that are older than one that has completed.
    size_t overtaken = 0;
    uint64_t overtaker = 0;  // the wr_id of that one
    uint32_t holders = 0;
  };

  void CompleteShared(State& state, uint64_t wr_id);
  void Complain(const State& state, uint64_t wr_id, const std::string& what);

  Verdict& verdict_;
  std::deque<State> queues_;
};

}  // namespace rdmaemu::sim
