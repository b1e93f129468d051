// Finds the programs at the two ends of a connection, for fault rules that end programs.
#pragma once

#include <vector>

#include "emulator/base/ids.h"
#include "emulator/cm/cm.h"
#include "emulator/fault/rule.h"
#include "emulator/host/faults/host_faults.h"
#include "emulator/host/processes.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu {

class ConnectionEnds {
 public:
  // The parts are not owned.
  ConnectionEnds(Verbs& verbs, const cm::Cm& cm, const Processes& processes)
      : verbs_(verbs), cm_(cm), processes_(processes) {}

  // Returns the running processes that the action means, each process once. `process` is kNone when
  // the moment has no process. Empty: there is no such process on this host.
  std::vector<ProcessId> Find(fault::EndProgram::Which which, ProcessId process,
                              const FaultTarget& target) const;

 private:
  using Found = std::vector<ProcessId>;

  Found Own(ProcessId process, const FaultTarget& target) const;
  Found Remote(const Found& own, const FaultTarget& target) const;
  // Adds the process that created an object of the group. If that process has ended, adds the
  // group's processes, which may have inherited the object.
  void AddOwner(ProcessId maker, GroupId group, Found& found) const;

  void AddRemoteOf(const QueuePair& qp, Found& found) const;
  void AddRemoteOf(const cm::CmaId& id, Found& found) const;
  // Adds the owner of the end with the communication id `own`. 0: the end that knows its peer as
  // `other`, else a listener. `address` is the end's address.
  void AddEnd(const NetAddress& address, uint32_t own, uint32_t other, uint64_t service_id,
              Found& found) const;

  Verbs& verbs_;
  const cm::Cm& cm_;
  const Processes& processes_;
};

}  // namespace rdmaemu
