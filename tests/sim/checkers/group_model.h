// The allowed behaviour of an id's memberships in multicast groups (rdma_join_multicast(3),
// rdma_leave_multicast(3), ucma_leave_multicast of the kernel). Each join gets one event with its
// result. It ends with a leave or with the id.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tests/sim/checkers/cm_checker.h"
#include "tests/sim/verdict.h"

namespace rdmaemu::sim {

class GroupModel {
 public:
  using Join = uint32_t;
  using Id = uint32_t;
  explicit GroupModel(Verdict& verdict) : verdict_(verdict) {}

  // `fails`: the id's address has no device any more, so MULTICAST_ERROR is due.
  void Joined(Join join, Id id, const std::string& name, bool fails);
  void Event(Join join, CmEventKind event);
  // A leave has returned `error`. On success `events` is the number of the join's events that were
  // taken.
  void Left(Join join, int error, bool on_its_channel, uint32_t events);
  void IdRemoved(Id id);  // its device was removed
  void IdGone(Id id);     // destroyed, or its process or host has died
  // All time limits have expired.
  void Finish();

 private:
  struct State {
    Id id;
    std::string name;
    bool fails = false, removed = false, gone = false;
    uint32_t events = 0;
  };
  void Complain(const State& state, const std::string& what);

  Verdict& verdict_;
  std::map<Join, State> joins_;
};

}  // namespace rdmaemu::sim
