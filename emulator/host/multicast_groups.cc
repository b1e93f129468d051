#include "emulator/host/multicast_groups.h"

#include <algorithm>

namespace rdmaemu {

bool HostGroups::IsJoinedOn(const NetAddress& local, const NetAddress& group) const {
  return std::ranges::any_of(memberships_, [&](const auto& each) {
    return each.second.on_wire && each.second.local == local && each.first.second == group;
  });
}

Status HostGroups::JoinGroup(uint32_t device_index, const NetAddress& local,
                             const NetAddress& group) {
  const std::pair key{device_index, group};
  if (const auto joined = memberships_.find(key); joined != memberships_.end()) {
    joined->second.joins++;
    return {};
  }
  const AddressTable::Row* const row = addresses_.Find(local);
  const bool on_wire = row != nullptr && row->own.on_wire;
  if (on_wire && !IsJoinedOn(local, group)) {
    if (const Status joined = fabric_.JoinGroup(local, group); !joined) return joined;
  }
  memberships_[key] = {local, on_wire, 1};
  verbs_.SetJoined(device_index, group, true);
  return {};
}

void HostGroups::LeaveGroup(uint32_t device_index, const NetAddress& group) {
  const auto joined = memberships_.find({device_index, group});
  if (joined == memberships_.end() || --joined->second.joins > 0) return;
  const Membership left = joined->second;
  memberships_.erase(joined);
  if (left.on_wire && !IsJoinedOn(left.local, group)) fabric_.LeaveGroup(left.local, group);
  verbs_.SetJoined(device_index, group, false);
}

}  // namespace rdmaemu
