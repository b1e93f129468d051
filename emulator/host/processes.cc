#include "emulator/host/processes.h"

#include <cstring>

namespace rdmaemu {

ProcessId Processes::Attach(const ProcessInfo& info) {
  const ProcessId process{++last_process_};
  processes_[process] = {info, GroupId::kNone};
  return process;
}

std::optional<GroupId> Processes::Detach(ProcessId process) {
  const auto it = processes_.find(process);
  if (it == processes_.end()) return std::nullopt;
  const GroupId group = it->second.group;
  processes_.erase(it);
  if (group == GroupId::kNone) return std::nullopt;
  const auto members = groups_.find(group);
  if (--members->second.processes > 0) return std::nullopt;
  groups_.erase(members);
  return group;
}

Result<GroupId> Processes::Join(ProcessId process, const GroupToken& token, Random& random) {
  ConnectedProcess* joining = Find(process);
  if (joining == nullptr) return Fail(EINVAL);
  if (joining->group != GroupId::kNone) return Fail(EALREADY);
  if (token == GroupToken{}) {
    if (groups_.size() >= kMaxGroups) return Fail(ENOMEM);
    const GroupId group{++last_group_};
    Group& made = groups_[group];
    for (size_t i = 0; i < made.token.size(); i += 8) {
      const uint64_t word = random.Next64();
      std::memcpy(made.token.data() + i, &word, 8);
    }
    made.processes = 1;
    joining->group = group;
    return group;
  }
  for (auto& [group, members] : groups_) {
    if (members.token != token) continue;
    members.processes++;
    joining->group = group;
    return group;
  }
  return Fail(EACCES);
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
