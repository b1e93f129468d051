#include "emulator/fault/likely_faults.h"

#include <algorithm>
#include <iterator>

namespace rdmaemu::fault {
namespace {

struct Fault {
  std::string_view name, keys;
};
struct Row {
  std::string_view places;  // a pattern
  std::string_view name, keys;
};

// Every row whose pattern matches a place applies to it. The first rows of a place are tried first.
constexpr Row kRows[] = {
    // Errnos of the man pages of librdmacm and libibverbs, section "RETURN VALUE" or "ERRORS".
    {"call.cm_create_channel", "errno=EMFILE", "errno = \"EMFILE\""},
    {"call.create_*", "errno=ENOMEM", "errno = \"ENOMEM\""},
    {"call.create_qp", "errno=EINVAL", "errno = \"EINVAL\""},
    {"call.create_ah", "errno=EINVAL", "errno = \"EINVAL\""},
    {"call.alloc_*", "errno=ENOMEM", "errno = \"ENOMEM\""},
    {"call.reg_*", "errno=ENOMEM", "errno = \"ENOMEM\""},
    {"call.reg_*", "errno=EFAULT", "errno = \"EFAULT\""},
    {"call.rereg_mr", "errno=ENOMEM", "errno = \"ENOMEM\""},
    {"call.bind", "errno=EADDRINUSE", "errno = \"EADDRINUSE\""},
    {"call.bind", "errno=EADDRNOTAVAIL", "errno = \"EADDRNOTAVAIL\""},
    {"call.listen", "errno=EADDRINUSE", "errno = \"EADDRINUSE\""},
    {"call.resolve_addr", "errno=ENETUNREACH", "errno = \"ENETUNREACH\""},
    {"call.resolve_addr", "errno=ENODEV", "errno = \"ENODEV\""},
    {"call.resolve_route", "errno=ENOMEM", "errno = \"ENOMEM\""},
    {"call.connect", "errno=ENOMEM", "errno = \"ENOMEM\""},
    {"call.accept", "errno=ENOMEM", "errno = \"ENOMEM\""},
    {"call.accept", "errno=ECONNRESET", "errno = \"ECONNRESET\""},
    {"call.reject", "errno=EINVAL", "errno = \"EINVAL\""},
    {"call.disconnect", "errno=EINVAL", "errno = \"EINVAL\""},
    {"call.join_*", "errno=ENOMEM", "errno = \"ENOMEM\""},
    {"call.list_devices", "errno=ENOMEM", "errno = \"ENOMEM\""},
    {"call.open_device", "errno=EIO", "errno = \"EIO\""},
    {"call.query_*", "errno=EIO", "errno = \"EIO\""},
    {"call.modify_*", "errno=EINVAL", "errno = \"EINVAL\""},
    {"call.modify_*", "errno=ENOMEM", "errno = \"ENOMEM\""},
    {"call.resize_cq", "errno=ENOMEM", "errno = \"ENOMEM\""},
    {"call.post_*", "errno=ENOMEM", "errno = \"ENOMEM\""},
    {"call.get_event", "errno=EINTR", "errno = \"EINTR\""},
    // A call that destroys an object fails only after a mistake of the program.
    // The device disappears, or its link does, while the program makes the call.
    {"call.reg_mr", "device removed", "remove_device = true"},
    {"call.connect", "device removed", "remove_device = true"},
    {"call.post_send", "device removed", "remove_device = true"},
    {"call.post_send", "port down", "port = \"down\""},
    // Events: another outcome, or a later one.
    {"event.addr_resolved", "event=ADDR_ERROR", "event = \"addr_error\", status = -110"},
    {"event.route_resolved", "event=ROUTE_ERROR", "event = \"route_error\", status = -110"},
    {"event.connect_response", "event=REJECTED", "event = \"rejected\", status = 28"},
    {"event.connect_response", "event=UNREACHABLE", "event = \"unreachable\", status = -110"},
    {"event.connect_response", "event=CONNECT_ERROR", "event = \"connect_error\", status = -110"},
    {"event.established", "event=CONNECT_ERROR", "event = \"connect_error\", status = -110"},
    {"event.established", "event=DISCONNECTED", "event = \"disconnected\""},
    {"event.multicast_join", "event=MULTICAST_ERROR", "event = \"multicast_error\", status = -110"},
    {"event.*", "delay", "delay_ms = 100"},
    {"event.*", "device removed", "remove_device = true"},
    {"event.connect_response", "port down", "port = \"down\""},
    {"event.established", "port down", "port = \"down\""},
    // CM messages. The protocol repairs one loss, and reports the loss of all.
    {"cm.req", "reject=28", "reject = 28"},
    {"cm.req", "unreachable", "unreachable = -110"},
    {"cm.rep", "reject=28", "reject = 28"},
    {"cm.sidr_req", "reject=1", "reject = 1"},
    {"cm.*", "drop", "drop = true"},
    {"cm.*", "drop all", "drop = true, onward = true"},
    {"cm.*", "delay", "delay_ms = 100"},
    {"cm.*", "duplicate", "duplicate = 1"},
    // Completions.
    {"wc.send", "status=RETRY_EXC_ERR", "status = \"retry_exc_err\""},
    {"wc.send", "status=RNR_RETRY_EXC_ERR", "status = \"rnr_retry_exc_err\""},
    {"wc.rdma_write", "status=REM_ACCESS_ERR", "status = \"rem_access_err\""},
    {"wc.rdma_write", "status=RETRY_EXC_ERR", "status = \"retry_exc_err\""},
    {"wc.rdma_read", "status=REM_ACCESS_ERR", "status = \"rem_access_err\""},
    {"wc.rdma_read", "status=RETRY_EXC_ERR", "status = \"retry_exc_err\""},
    {"wc.comp_swap", "status=REM_ACCESS_ERR", "status = \"rem_access_err\""},
    {"wc.fetch_add", "status=REM_ACCESS_ERR", "status = \"rem_access_err\""},
    {"wc.bind_mw", "status=MW_BIND_ERR", "status = \"mw_bind_err\""},
    {"wc.recv*", "status=LOC_LEN_ERR", "status = \"loc_len_err\""},
    {"wc.recv*", "status=WR_FLUSH_ERR", "status = \"wr_flush_err\""},
    {"wc.*", "delay", "delay_ms = 100"},
    {"wc.*", "device removed", "remove_device = true"},
    {"wc.*", "async=QP_FATAL", "async = \"qp_fatal\""},
    // Asynchronous events.
    {"async.*", "async delay", "delay_ms = 100"},
    // Memory that the program unmapped too early.
    {"memory.*", "unmapped", "unmapped = true"},
    // Packets. The transport repairs each of these.
    {"packet.*", "drop", "drop = true"},
    {"packet.*", "duplicate", "duplicate = 1"},
};

// Each of these asynchronous events is raised on the objects of these moments, or on every object
// that can have it.
constexpr std::string_view kAsyncPlaces[] = {"event.established", "call.post_send"};
constexpr Fault kAsyncEvents[] = {
    {"async=QP_FATAL", "async = \"qp_fatal\""},
    {"async=QP_ACCESS_ERR", "async = \"qp_access_err\""},
    {"async=QP_LAST_WQE_REACHED", "async = \"qp_last_wqe_reached\""},
    {"async=CQ_ERR", "async = \"cq_err\""},
    {"async=SRQ_ERR", "async = \"srq_err\""},
    {"async=SRQ_LIMIT_REACHED", "async = \"srq_limit_reached\""},
    {"async=DEVICE_FATAL", "async = \"device_fatal\""},
    {"async=PORT_ERR", "async = \"port_err\""},
    {"async=GID_CHANGE", "async = \"gid_change\""},
    {"async=PKEY_CHANGE", "async = \"pkey_change\""},
    {"async=LID_CHANGE", "async = \"lid_change\""},
    {"async=SM_CHANGE", "async = \"sm_change\""},
    {"async=CLIENT_REREGISTER", "async = \"client_reregister\""},
};

// The other program of the connection ends: before it has answered, when the connection is
// established, and while messages are exchanged.
constexpr std::string_view kPeerPlaces[] = {
    "cm.req",         "cm.rep", "event.connect_response", "event.established", "call.post_send",
    "call.post_recv", "wc.recv"};
constexpr Fault kPeerCrash = {"peer crash", "end_program = \"peer\""};

}  // namespace

bool MatchesPattern(std::string_view pattern, std::string_view text) {
  const size_t star = pattern.find('*');
  if (star == pattern.npos) return pattern == text;
  if (text.substr(0, star) != pattern.substr(0, star)) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (size_t at = star; at <= text.size(); at++) {
    if (MatchesPattern(rest, text.substr(at))) return true;
  }
  return false;
}

std::vector<LikelyFault> LikelyFaultsAt(std::string_view place) {
  std::vector<LikelyFault> faults;
  for (const Row& row : kRows) {
    if (MatchesPattern(row.places, place)) {
      faults.push_back({std::string(row.name), std::string(row.keys)});
    }
  }
  if (std::ranges::find(kAsyncPlaces, place) != std::end(kAsyncPlaces)) {
    for (const Fault& event : kAsyncEvents) {
      faults.push_back({std::string(event.name), std::string(event.keys)});
    }
  }
  return faults;
}

std::vector<LikelyFault> PeerFaultsAt(std::string_view place) {
  if (std::ranges::find(kPeerPlaces, place) == std::end(kPeerPlaces)) return {};
  return {{std::string(kPeerCrash.name), std::string(kPeerCrash.keys)}};
}

std::vector<std::string_view> PlacesOfLikelyFaults() {
  std::vector<std::string_view> places;
  for (const Row& row : kRows) places.push_back(row.places);
  for (const std::string_view place : kAsyncPlaces) places.push_back(place);
  for (const std::string_view place : kPeerPlaces) places.push_back(place);
  return places;
}

}  // namespace rdmaemu::fault
