#include "tests/sim/tally.h"

#include <span>

namespace rdmaemu::sim {
namespace {

constexpr std::string_view kOfTraffic[] = {
    // The network and the machines.
    "network.lost",
    "network.repeated",
    "network.reordered",
    "network.delayed",
    "network.corrupted",
    "network.refused",
    "network.parted",
    "network.socket_full",
    "network.nobody",
    "fault.kill",
    "fault.pause",
    "fault.crash",
    "fault.restart",
    "fault.partition",
    // What programs do.
    "connect.RC.wire",
    "connect.RC.same_machine",
    "connect.UC.wire",
    "connect.UC.same_machine",
    "connect.UD",
    "connect.psn_wraps",
    "op.SEND",
    "op.SEND_WITH_IMM",
    "op.SEND_WITH_INV",
    "op.WRITE",
    "op.WRITE_WITH_IMM",
    "op.READ",
    "op.CMP_AND_SWP",
    "op.FETCH_AND_ADD",
    "op.BIND_MW",
    "op.LOCAL_INV",
    "op.write_through_window",
    "op.inline",
    "op.receive",
    "op.create_srq",
    "op.destroy_qp",
    "op.modify_to_error",
    "op.reset",
    "op.drain",
    "op.undrain",
    "op.wrong_qkey",
    "arrived.UC",
    "arrived.UD",
    "event.armed",
    "event.armed_solicited",
    "event.raised",
    "copy.done",
    // What must fail.
    "misuse.invalidated_window",
    "misuse.local_end",
    "misuse.queue_pair_without_rights",
    "misuse.receive_too_small",
    "misuse.region_without_rights",
    "misuse.remote_begin",
    "misuse.remote_end",
    "misuse.wrong_lkey",
    "misuse.wrong_rkey",
    // How requests end.
    "status.success",
    "status.LOC_PROT_ERR",
    "status.LOC_QP_OP_ERR",
    "status.REM_ACCESS_ERR",
    "status.REM_INV_REQ_ERR",
    "status.REM_OP_ERR",
    "status.RETRY_EXC_ERR",
    "status.RNR_RETRY_EXC_ERR",
    "status.WR_FLUSH_ERR",
    // What hosts do about it.
    "host.retransmissions",
    "host.naks",
    "host.rnr_naks",
    "host.duplicates",
    "host.local_packets",
    "host.cm_retransmissions",
    "host.cm_duplicates",
    "host.dropped.bad_icrc",
    "host.dropped.no_qp",
    "host.dropped.wrong_state",
    "host.dropped.wrong_qkey",
    "host.dropped.no_receive",
    // Connection management.
    "cm.listen",
    "cm.connect.RC",
    "cm.connect.UC",
    "cm.connect.UD",
    "cm.accept",
    "cm.reject",
    "cm.established",
    "cm.disconnect",
    "cm.destroy_id",
    "cm.migrate",
    "cm.qp_number_used_again",
    "cm.rejected.4",
    "cm.rejected.8",
    "cm.rejected.10",
    "cm.rejected.28",
    "cm.event.RDMA_CM_EVENT_CONNECT_REQUEST",
    "cm.event.RDMA_CM_EVENT_CONNECT_RESPONSE",
    "cm.event.RDMA_CM_EVENT_ESTABLISHED",
    "cm.event.RDMA_CM_EVENT_DISCONNECTED",
    "cm.event.RDMA_CM_EVENT_REJECTED",
    "cm.event.RDMA_CM_EVENT_UNREACHABLE",
    "cm.event.RDMA_CM_EVENT_TIMEWAIT_EXIT",
};

// Each call must have worked and have been refused, but for those that every id allows.
constexpr std::string_view kOfCm[] = {
    "network.lost",
    "network.repeated",
    "network.reordered",
    "network.delayed",
    "network.corrupted",
    "network.parted",
    "fault.kill",
    "fault.pause",
    "fault.crash",
    "fault.partition",
    "end.orderly",
    "api.qp_number_used_again",
    "api.rdma_bind_addr.works",
    "api.rdma_bind_addr.refused",
    "api.rdma_resolve_addr.works",
    "api.rdma_resolve_addr.refused",
    "api.rdma_resolve_route.works",
    "api.rdma_resolve_route.refused",
    "api.rdma_listen.works",
    "api.rdma_listen.refused",
    "api.rdma_connect.works",
    "api.rdma_connect.refused",
    "api.rdma_accept.works",
    "api.rdma_accept.refused",
    "api.rdma_establish.works",
    "api.rdma_establish.refused",
    "api.rdma_reject.works",
    "api.rdma_reject.refused",
    "api.rdma_disconnect.works",
    "api.rdma_disconnect.refused",
    "api.rdma_notify.works",
    "api.rdma_notify.refused",
    "api.rdma_migrate_id.works",
    "api.rdma_migrate_id.refused",
    "api.rdma_destroy_id.works",
    "api.rdma_destroy_id.refused",
    "api.event.RDMA_CM_EVENT_ADDR_RESOLVED",
    "api.event.RDMA_CM_EVENT_ROUTE_RESOLVED",
    "api.event.RDMA_CM_EVENT_CONNECT_REQUEST",
    "api.event.RDMA_CM_EVENT_CONNECT_RESPONSE",
    "api.event.RDMA_CM_EVENT_UNREACHABLE",
    "api.event.RDMA_CM_EVENT_REJECTED",
    "api.event.RDMA_CM_EVENT_ESTABLISHED",
    "api.event.RDMA_CM_EVENT_DISCONNECTED",
    "api.event.RDMA_CM_EVENT_TIMEWAIT_EXIT",
    "api.rejected.4",
    "api.rejected.8",
    "api.rejected.10",
    "api.rejected.28",
    "host.cm_retransmissions",
    "host.cm_duplicates",
};

std::vector<std::string> Missing(const Tally& tally, std::span<const std::string_view> required) {
  std::vector<std::string> missing;
  for (const std::string_view what : required) {
    if (tally.Of(what) == 0) missing.emplace_back(what);
  }
  return missing;
}

}  // namespace

std::vector<std::string> MissingOfTraffic(const Tally& tally) { return Missing(tally, kOfTraffic); }
std::vector<std::string> MissingOfCm(const Tally& tally) { return Missing(tally, kOfCm); }

std::string Tally::ToText() const {
  std::string text;
  for (const auto& [what, times] : counts_) {
    text += "  " + what + std::string(what.size() < 44 ? 44 - what.size() : 1, ' ') +
            std::to_string(times) + "\n";
  }
  return text;
}

}  // namespace rdmaemu::sim
