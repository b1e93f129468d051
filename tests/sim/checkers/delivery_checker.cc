#include "tests/sim/checkers/delivery_checker.h"

#include <algorithm>
#include <utility>

namespace rdmaemu::sim {

DeliveryChecker::Stream DeliveryChecker::Open(Promise promise, std::string name) {
  State state;
  state.promise = promise;
  state.name = std::move(name);
  streams_.push_back(std::move(state));
  return static_cast<Stream>(streams_.size() - 1);
}

void DeliveryChecker::Complain(const State& state, const Message& message,
                               const std::string& what) {
  verdict_.Complain("delivery", state.name + ", a message of " + std::to_string(message.length) +
                                    " bytes (tag " + std::to_string(message.tag) + "): " + what);
}

bool DeliveryChecker::Same(const Message& a, const Message& b) {
  return a.length == b.length && a.immediate == b.immediate && a.write == b.write &&
         a.invalidated == b.invalidated;
}

uint64_t DeliveryChecker::Sent(Stream stream, const Message& message) {
  State& state = streams_.at(stream);
  state.sent.push_back({message});
  return state.sent.size() - 1;
}

const Message* DeliveryChecker::Next(Stream stream) const {
  const State& state = streams_.at(stream);
  return state.arrived < state.sent.size() ? &state.sent[state.arrived].message : nullptr;
}

void DeliveryChecker::Arrived(Stream stream, const Message& message) {
  State& state = streams_.at(stream);
  if (state.promise == Promise::kExactlyOnceInOrder) {
    const Message* expected = Next(stream);
    if (expected == nullptr) {
      Complain(state, message, "arrived, though all that was sent had arrived before");
    } else if (!Same(*expected, message)) {
      Complain(state, message,
               "arrived where one of " + std::to_string(expected->length) + " bytes (tag " +
                   std::to_string(expected->tag) + ", number " + std::to_string(state.arrived) +
                   ") was due");
    }
    state.arrived++;
    return;
  }
  const auto it = std::ranges::find(state.sent, message.tag,
                                    [](const Entry& entry) { return entry.message.tag; });
  if (it == state.sent.end() || !Same(it->message, message)) {
    return Complain(state, message, "arrived, but was never sent like this");
  }
  const auto number = static_cast<uint64_t>(it - state.sent.begin());
  if (it->here && !state.excused) Complain(state, message, "arrived twice");
  if (state.promise == Promise::kAtMostOnceInOrder && number < state.arrived && !it->here &&
      !state.excused) {
    Complain(state, message, "arrived behind a later one");
  }
  it->here = true;
  state.arrived = std::max(state.arrived, number + 1);
}

void DeliveryChecker::Acknowledged(Stream stream, uint64_t number) {
  const State& state = streams_.at(stream);
  if (state.promise != Promise::kExactlyOnceInOrder || state.closed) return;
  if (number >= state.arrived) {
    Complain(state, state.sent.at(number).message,
             "its sender was told that it has arrived, and it has not");
  }
}

}  // namespace rdmaemu::sim
