#include "emulator/host/connection_ends.h"

#include <algorithm>
#include <limits>

#include "emulator/cm/cma_id.h"

namespace rdmaemu {
namespace {

constexpr size_t kAll = std::numeric_limits<size_t>::max();

bool Has(const std::vector<ProcessId>& processes, ProcessId process) {
  return std::ranges::find(processes, process) != processes.end();
}

// Returns true if the queue pair knows the queue pair at its other end.
bool HasRemote(const QueuePair& qp) {
  const bool has_path = qp.state() != IBV_QPS_RESET && qp.state() != IBV_QPS_INIT;
  return qp.type != IBV_QPT_UD && has_path && qp.attr.dest_qp_num != 0;
}

}  // namespace

std::vector<ProcessId> ConnectionEnds::Find(fault::EndProgram::Which which, ProcessId process,
                                            const FaultTarget& target) const {
  Found own = Own(process, target);
  if (which == fault::EndProgram::Which::kSelf) return own;
  Found remote = Remote(own, target);
  std::erase_if(remote, [&](ProcessId each) { return Has(own, each); });
  return remote;
}

ConnectionEnds::Found ConnectionEnds::Own(ProcessId process, const FaultTarget& target) const {
  Found found;
  if (process != ProcessId::kNone) {
    AddOwner(process, GroupId::kNone, found);
  } else if (verbs_.FindQpByHandle(target.group, target.qp)) {
    AddOwner(verbs_.MakerOf(target.qp), target.group, found);
  } else if (target.message) {
    const MessageEnds& ends = *target.message;
    AddEnd(ends.local, ends.local_comm_id, ends.remote_comm_id, ends.service_id, found);
  } else {
    AddOwner(ProcessId::kNone, target.group, found);
  }
  return found;
}

ConnectionEnds::Found ConnectionEnds::Remote(const Found& own, const FaultTarget& target) const {
  Found found;
  if (target.message) {
    const MessageEnds& ends = *target.message;
    AddEnd(ends.remote, ends.remote_comm_id, ends.local_comm_id, ends.service_id, found);
    return found;
  }
  if (const auto qp = verbs_.FindQpByHandle(target.group, target.qp)) {
    AddRemoteOf(**qp, found);
    if (HasRemote(**qp) || !found.empty()) return found;
  }
  const std::vector<const cm::CmaId*> ids = cm_.Ids(kAll);
  if (target.id != 0) {
    const auto id = std::ranges::find(ids, target.id, &cm::CmaId::handle);
    if (id != ids.end()) {
      AddRemoteOf(**id, found);
      if ((*id)->state == cm::IdState::kConnect || !found.empty()) return found;
    }
  }
  for (const QueuePair* const qp : verbs_.All<QueuePair>(kAll)) {
    if (Has(own, verbs_.MakerOf(qp->handle))) AddRemoteOf(*qp, found);
  }
  for (const cm::Connection* const connection : cm_.Connections()) {
    const auto id = std::ranges::find(ids, connection->owner, &cm::CmaId::handle);
    if (id != ids.end() && Has(own, (*id)->process)) AddRemoteOf(**id, found);
  }
  return found;
}

void ConnectionEnds::AddOwner(ProcessId maker, GroupId group, Found& found) const {
  const ConnectedProcess* const process = processes_.Find(maker);
  const bool runs = process != nullptr && process->runs;
  for (const auto& [each, connected] : processes_.all()) {
    const bool is_owner =
        runs ? each == maker : connected.group == group && group != GroupId::kNone;
    if (is_owner && connected.runs && !Has(found, each)) found.push_back(each);
  }
}

void ConnectionEnds::AddRemoteOf(const QueuePair& qp, Found& found) const {
  if (HasRemote(qp)) {
    const QueuePair* const other = verbs_.FindQp(qp.path.destination, qp.attr.dest_qp_num);
    if (other == nullptr) return;
    return AddOwner(verbs_.MakerOf(other->handle), other->group(), found);
  }
  // A queue pair of RDMA CM has no path before its connection is established.
  for (const cm::CmaId* const id : cm_.Ids(kAll)) {
    if (id->qpn == qp.qpn && id->group == qp.group()) AddRemoteOf(*id, found);
  }
}

void ConnectionEnds::AddRemoteOf(const cm::CmaId& id, Found& found) const {
  const std::vector<const cm::Connection*> connections = cm_.Connections();
  const auto own = std::ranges::find(connections, id.handle, &cm::Connection::owner);
  if (own != connections.end()) {
    const cm::Connection& connection = **own;
    return AddEnd(connection.route.destination, connection.remote_id, connection.local_id,
                  connection.service_id, found);
  }
  if (id.state == cm::IdState::kListen || id.destination().IsNone()) return;
  AddEnd(id.destination().address, 0, 0, id.ServiceId(id.destination()), found);
}

void ConnectionEnds::AddEnd(const NetAddress& address, uint32_t own, uint32_t other,
                            uint64_t service_id, Found& found) const {
  const std::vector<const cm::CmaId*> ids = cm_.Ids(kAll);
  bool is_connected = false;
  for (const cm::Connection* const connection : cm_.Connections()) {
    if (connection->route.source != address) continue;
    const bool is_end =
        own != 0 ? connection->local_id == own : other != 0 && connection->remote_id == other;
    const auto id = std::ranges::find(ids, connection->owner, &cm::CmaId::handle);
    if (!is_end || id == ids.end()) continue;
    AddOwner((*id)->process, (*id)->group, found);
    is_connected = true;
  }
  if (is_connected || own != 0 || !verbs_.IsLocal(address)) return;
  for (const cm::CmaId* const id : ids) {
    if (id->state != cm::IdState::kListen || id->ServiceId(id->source()) != service_id) continue;
    const NetAddress& bound = id->source().address;
    if (bound == address || bound.IsZero()) AddOwner(id->process, id->group, found);
  }
}

}  // namespace rdmaemu
