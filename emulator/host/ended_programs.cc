#include "emulator/host/ended_programs.h"

#include <algorithm>
#include <cerrno>
#include <utility>
#include <variant>

namespace rdmaemu {

std::optional<std::string> WhyNotEmbedded(const fault::Rule& rule) {
  const auto* const deed = std::get_if<fault::Deed>(&rule.action);
  if (deed == nullptr || !std::holds_alternative<fault::EndProgram>(*deed)) return std::nullopt;
  return "rule \"" + rule.name + "\": an embedded host has no " + fault::ActionText(rule.action) +
         ", because it is a part of its program; use `rdmaemu run`, or crash = true";
}

void EndedPrograms::Do(Time now, const EndProgramDeed& deed) {
  for (const ProcessId process : deed.processes) {
    if (std::ranges::find(queue_, process) == queue_.end()) queue_.push_back(process);
  }
  if (!deed.processes.empty() || !trace_.wants_records()) return;
  const std::string what = fault::ActionText(fault::Action(fault::Deed(deed.what)));
  trace::Record record{now, ProcessId::kNone, "fault.failed", deed.rule, what, {}};
  record.fields.push_back({"errno", int64_t{ESRCH}});
  record.fields.push_back({"reason", "there is no such program on this host"});
  trace_.Write(record);
}

std::optional<ProcessId> EndedPrograms::Take() {
  if (queue_.empty()) return std::nullopt;
  const ProcessId next = queue_.front();
  queue_.pop_front();
  return next;
}

}  // namespace rdmaemu
