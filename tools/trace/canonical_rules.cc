#include "tools/trace/canonical_rules.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace rdmaemu::trace_tools {
namespace {

// Calls that fetch an event or a completion, which has a record of its own. Also calls by which a
// program waits for completions. One event of the completion channel may announce several
// completions. Completions may also be queued before the program waits.
constexpr std::string_view kFetching[] = {
    "poll_cq",           "start_poll",    "next_poll",    "end_poll",      "get_async_event",
    "rdma_get_cm_event", "req_notify_cq", "get_cq_event", "ack_cq_events",
};
// The readers of a completion that ibv_start_poll or ibv_next_poll found.
constexpr std::string_view kReaderPrefix = "wc_read_";

// The errnos of a call that found no event or completion. ibv_start_poll and ibv_next_poll return
// ENOENT.
constexpr std::string_view kNothing[] = {"EAGAIN", "EWOULDBLOCK", "ENOENT", "EINTR"};

constexpr std::string_view kOfMachine[] = {"get_device_name", "get_device_guid",
                                           "get_device_index"};

constexpr std::string_view kDropped[] = {
    "pd_handle",
    "mr_handle",
    "dm_handle",
    "vendor_err",
    "vendor_error",
    "pid",
    "child",
    "parent",
    "process",
    "fd",
    "cmd_fd",
    "async_fd",
    "num_comp_vectors",
    "timestamp",
    "handle",
    "nevents",
    "completion_ts",
    "completion_wallclock_ns",
    "completion_timestamp",
    "node_desc",
};

constexpr std::string_view kNamed[] = {
    "invalidate_rkey",
    "invalidated_rkey",
    "qp_num",
    "qpn",
    "remote_qpn",
    "dest_qp_num",
    "src_qp",
    "lkey",
    "rkey",
    "remote_rkey",
    "sq_psn",
    "rq_psn",
    "psn",
    "starting_psn",
    "guid",
    "node_guid",
    "sys_image_guid",
    "remote_addr",
    "addr",
    "iova",
    "raddr",
    "lid",
    "dlid",
    "slid",
    "sm_lid",
    "gid",
    "dgid",
    "sgid",
    "mgid",
    "flow_label",
    "fw_ver",
    "vendor_id",
    "hw_ver",
    "vendor_part_id",
    "name",
    "dev_name",
    "dev_path",
    "ibdev_path",
    "srq_num",
    "remote_srqn",
};

template <class List>
bool Has(const List& list, std::string_view word) {
  return std::ranges::find(list, word) != std::end(list);
}

// Returns the name of a failed call's errno, or an empty text.
std::string_view ErrnoOf(const Json& fields) {
  const auto it = fields.find("errno");
  return it != fields.end() && it->is_string() ? std::string_view(it->get_ref<const std::string&>())
                                               : std::string_view();
}

}  // namespace

bool Counts(const Record& record, const Json& fields) {
  if (record.kind != "call") return true;
  if (record.what.starts_with(kReaderPrefix)) return false;
  if (!Has(kFetching, record.what)) return true;
  // The thread blocked in this call when its process ended.
  if (fields.contains("unfinished")) return false;
  const std::string_view error = ErrnoOf(fields);
  return !error.empty() && !Has(kNothing, error);
}

bool ReturnsPort(const Record& record) {
  return record.what == "rdma_get_src_port" || record.what == "rdma_get_dst_port";
}

bool HasMachineResult(const Record& record) { return Has(kOfMachine, record.what); }

ValueRule RuleOf(std::string_view key, const Json& value) {
  if (Has(kDropped, key)) return ValueRule::kDrop;
  const auto is_from = [&](uint64_t first) {
    return value.is_number_unsigned() && value.get<uint64_t>() >= first;
  };
  if (key == "wr_id" || key == "imm_data")
    return is_from(kFirstNamedTag) ? ValueRule::kName : ValueRule::kKeep;
  return Has(kNamed, key) ? ValueRule::kName : ValueRule::kKeep;
}

}  // namespace rdmaemu::trace_tools
