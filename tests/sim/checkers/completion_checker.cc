#include "tests/sim/checkers/completion_checker.h"

#include <algorithm>
#include <utility>

namespace rdmaemu::sim {

CompletionChecker::Queue CompletionChecker::Open(Kind kind, std::string name) {
  State state;
  state.kind = kind;
  state.name = std::move(name);
  queues_.push_back(std::move(state));
  return static_cast<Queue>(queues_.size() - 1);
}

void CompletionChecker::Complain(const State& state, uint64_t wr_id, const std::string& what) {
  verdict_.Complain("completions", state.name + ", wr_id " + std::to_string(wr_id) + ": " + what);
}

void CompletionChecker::Post(Queue queue, uint64_t wr_id, bool signalled) {
  queues_.at(queue).posted.push_back({wr_id, signalled});
}

void CompletionChecker::CompleteShared(State& state, uint64_t wr_id) {
  const auto it = std::ranges::find(state.posted, wr_id, &Posted::wr_id);
  if (it == state.posted.end()) {
    return Complain(state, wr_id, "completed twice, or was never posted");
  }
  const auto before = static_cast<size_t>(it - state.posted.begin());
  if (before < state.overtaken) {
    state.overtaken--;
  } else {
    state.overtaken = before;
    state.overtaker = wr_id;
  }
  state.posted.erase(it);
}

void CompletionChecker::Settled() {
  for (State& state : queues_) {
    if (state.kind != Kind::kShared || state.closed || state.overtaken <= state.holders) continue;
    Complain(state, state.overtaker,
             "completed before " + std::to_string(state.overtaken) +
                 " older receives, though only " + std::to_string(state.holders) +
                 " QPs can hold one");
  }
}

void CompletionChecker::Complete(Queue queue, uint64_t wr_id, Ended ended) {
  State& state = queues_.at(queue);
  if (state.closed) return Complain(state, wr_id, "completed after its queue was destroyed");
  if (state.kind == Kind::kShared) return CompleteShared(state, wr_id);
  if (ended == Ended::kSuccess && state.failed) {
    Complain(state, wr_id, "succeeded behind a request that failed");
  }
  if (ended == Ended::kFlushed && !state.failed && !state.may_flush) {
    Complain(state, wr_id, "was flushed, though nothing has failed");
  }
  const auto it = std::ranges::find(state.posted, wr_id, &Posted::wr_id);
  if (it == state.posted.end()) {
    return Complain(state, wr_id, "completed twice, or was never posted");
  }
  for (auto skipped = state.posted.begin(); skipped != it; ++skipped) {
    if (skipped->signalled) {
      Complain(state, wr_id, "completed before the older " + std::to_string(skipped->wr_id));
    } else if (state.failed) {
      Complain(state, wr_id,
               "completed before the older " + std::to_string(skipped->wr_id) +
                   ", which ought to be flushed, unsignalled or not");
    }
  }
  state.posted.erase(state.posted.begin(), it + 1);
  if (ended != Ended::kSuccess) state.failed = true;
}

size_t CompletionChecker::Outstanding(Queue queue) const {
  const State& state = queues_.at(queue);
  if (state.closed) return 0;
  // Unsignalled requests after the last signalled one have no completion.
  if (state.failed) return state.posted.size();
  const auto last = std::ranges::find_if(state.posted.rbegin(), state.posted.rend(),
                                         [](const Posted& posted) { return posted.signalled; });
  return static_cast<size_t>(state.posted.rend() - last);
}

void CompletionChecker::ExpectAllEnded(Queue queue) {
  const State& state = queues_.at(queue);
  if (const size_t left = Outstanding(queue); left > 0) {
    Complain(state, state.posted.front().wr_id,
             "never completed, and " + std::to_string(left - 1) + " behind it");
  }
}

}  // namespace rdmaemu::sim
