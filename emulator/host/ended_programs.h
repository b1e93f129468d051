// The programs that fault rules end (fault::EndProgram). The host names them, and its driver ends
// them.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "emulator/base/ids.h"
#include "emulator/base/time.h"
#include "emulator/fault/rule.h"
#include "emulator/host/faults/host_faults.h"
#include "emulator/trace/trace.h"

namespace rdmaemu {

// Returns why a host inside its program refuses the rule. Empty: it accepts the rule.
std::optional<std::string> WhyNotEmbedded(const fault::Rule& rule);

class EndedPrograms {
 public:
  // `trace` is not owned.
  explicit EndedPrograms(trace::Sink& trace) : trace_(trace) {}

  // Queues the programs, each once. Traces a failure if the rule found none.
  void Do(Time now, const EndProgramDeed& deed);
  // As Host::TakeEnding.
  std::optional<ProcessId> Take();

 private:
  trace::Sink& trace_;
  std::deque<ProcessId> queue_;
};

}  // namespace rdmaemu
