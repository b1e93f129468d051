#include "tests/sim/checkers/group_model.h"

#include <cerrno>

namespace rdmaemu::sim {

void GroupModel::Complain(const State& state, const std::string& what) {
  verdict_.Complain("group model", state.name + ", its group: " + what);
}

void GroupModel::Joined(Join join, Id id, const std::string& name, bool fails) {
  State& state = joins_[join];
  state.id = id;
  state.name = name;
  state.fails = fails;
}

void GroupModel::Event(Join join, CmEventKind event) {
  const auto found = joins_.find(join);
  if (found == joins_.end()) {
    return verdict_.Complain("group model", "an event of a group that nobody has joined");
  }
  State& state = found->second;
  if (state.gone) Complain(state, "an event after its end");
  if (++state.events > 1) Complain(state, "a second event");
  const CmEventKind due = state.fails ? CmEventKind::kMulticastError : CmEventKind::kMulticastJoin;
  if (event != due) {
    Complain(state, state.fails ? "it cannot have been joined" : "nothing was against the join");
  }
}

void GroupModel::Left(Join join, int error, bool on_its_channel, uint32_t events) {
  State& state = joins_.at(join);
  const int expected = state.gone ? ENOENT : !on_its_channel ? EINVAL : state.removed ? ENXIO : 0;
  if (error != expected) {
    Complain(state, "leaving it answers errno " + std::to_string(error) + " instead of " +
                        std::to_string(expected));
  }
  if (error != 0) return;
  if (events != state.events) {
    Complain(state, "it has had " + std::to_string(state.events) + " events, and leaving it says " +
                        std::to_string(events));
  }
  state.gone = true;
}

void GroupModel::IdRemoved(Id id) {
  for (auto& [join, state] : joins_) {
    if (state.id == id) state.removed = true;
  }
}

void GroupModel::IdGone(Id id) {
  for (auto& [join, state] : joins_) {
    if (state.id == id) state.gone = true;
  }
}

void GroupModel::Finish() {
  for (const auto& [join, state] : joins_) {
    if (!state.gone && state.events == 0) Complain(state, "nobody was told of the join");
  }
}

}  // namespace rdmaemu::sim
