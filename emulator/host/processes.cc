#include "emulator/host/processes.h"

#include <cstring>

namespace rdmaemu {

ProcessId Processes::Attach(const ProcessInfo& info) {
  const ProcessId process{++last_process_};
  processes_[process] = {info, GroupId::kNone};
  return process;
}

void Processes::End(ProcessId process) {
  if (ConnectedProcess* const ended = Find(process)) ended->runs = false;
}

std::optional<GroupId> Processes::Detach(ProcessId process) {
  const auto it = processes_.find(process);
  if (it == processes_.end()) return std::nullopt;
  const GroupId group = it->second.group;
  processes_.erase(it);
  if (group == GroupId::kNone) return std::nullopt;
  descents_.at(process).connected = false;
  Forget(process);
  const auto members = groups_.find(group);
  if (--members->second.processes > 0) return std::nullopt;
  groups_.erase(members);
  return group;
}

// Removes the process's entry, and the entries of ancestors that were kept only for this process.
void Processes::Forget(ProcessId process) {
  for (auto it = descents_.find(process);
       it != descents_.end() && !it->second.connected && it->second.children == 0;) {
    const ProcessId parent = it->second.parent;
    descents_.erase(it);
    it = descents_.find(parent);
    if (it != descents_.end()) it->second.children--;
  }
}

Result<GroupId> Processes::Join(ProcessId process, const Origin& origin, Random& random) {
  ConnectedProcess* joining = Find(process);
  if (joining == nullptr) return Fail(EINVAL);
  if (joining->group != GroupId::kNone) return Fail(EALREADY);
  if (origin.token == GroupToken{}) {
    if (groups_.size() >= kMaxGroups) return Fail(ENOMEM);
    const GroupId group{++last_group_};
    Group& made = groups_[group];
    for (size_t i = 0; i < made.token.size(); i += 8) {
      const uint64_t word = random.Next64();
      std::memcpy(made.token.data() + i, &word, 8);
    }
    made.processes = 1;
    joining->group = group;
    descents_[process] = {ProcessId::kNone, 0};
    return group;
  }
  const ConnectedProcess* const parent = Find(origin.parent);
  if (parent == nullptr || parent->group == GroupId::kNone) return Fail(EACCES);
  Group& members = groups_.at(parent->group);
  if (members.token != origin.token) return Fail(EACCES);
  members.processes++;
  joining->group = parent->group;
  descents_[process] = {origin.parent, origin.fork};
  descents_.at(origin.parent).children++;
  return joining->group;
}

Survivors Processes::SurvivorsOf(GroupId group) const {
  Survivors survivors;
  for (const auto& [process, connected] : processes_) {
    if (connected.group != group) continue;
    // A child holds a connection that outlives its process. The child owns the objects that its
    // parent owned.
    const ProcessId stand_in = connected.runs ? process : ProcessId::kNone;
    if (connected.runs) {
      survivors.AddRunning(process);
    } else {
      survivors.AddForked(process, connected.forks(), ProcessId::kNone);
    }
    const Descent* child = &descents_.at(process);
    while (child->parent != ProcessId::kNone) {
      survivors.AddForked(child->parent, child->fork, stand_in);
      child = &descents_.at(child->parent);
    }
  }
  return survivors;
}

std::string_view Processes::ProgramOf(GroupId group) const {
  const auto found = groups_.find(group);
  return found == groups_.end() ? std::string_view() : std::string_view(found->second.program);
}

const ConnectedProcess* Processes::Find(ProcessId process) const {
  const auto it = processes_.find(process);
  return it == processes_.end() ? nullptr : &it->second;
}

ConnectedProcess* Processes::Find(ProcessId process) {
  const auto it = processes_.find(process);
  return it == processes_.end() ? nullptr : &it->second;
}

std::string_view Processes::ProgramOf(ProcessId process) const {
  const ConnectedProcess* const found = Find(process);
  return found == nullptr ? std::string_view() : found->info.program;
}

}  // namespace rdmaemu
