#include "tools/trace/objects.h"

#include <algorithm>
#include <array>

namespace rdmaemu::trace_tools {
namespace {

constexpr std::array<std::string_view, 19> kKinds = {
    "context", "pd",   "mr",   "mw", "cq",       "compchannel", "qp", "srq",        "ah",      "wq",
    "dm",      "flow", "xrcd", "td", "counters", "channel",     "id", "flowaction", "indtable"};

struct CallOfObject {
  std::string_view call, kind;
};

constexpr CallOfObject kCreators[] = {
    {"open_device", "context"},
    {"import_device", "context"},
    {"alloc_pd", "pd"},
    {"import_pd", "pd"},
    {"alloc_parent_domain", "pd"},
    {"reg_mr", "mr"},
    {"reg_mr_iova", "mr"},
    {"reg_mr_iova2", "mr"},
    {"reg_dmabuf_mr", "mr"},
    {"reg_dm_mr", "mr"},
    {"import_mr", "mr"},
    {"rdma_reg_msgs", "mr"},
    {"rdma_reg_read", "mr"},
    {"rdma_reg_write", "mr"},
    {"alloc_null_mr", "mr"},
    {"alloc_mw", "mw"},
    {"create_cq", "cq"},
    {"create_cq_ex", "cq"},
    {"create_comp_channel", "compchannel"},
    {"create_qp", "qp"},
    {"create_qp_ex", "qp"},
    {"open_qp", "qp"},
    {"rdma_create_qp", "qp"},
    {"rdma_create_qp_ex", "qp"},
    {"create_srq", "srq"},
    {"create_srq_ex", "srq"},
    {"rdma_create_srq", "srq"},
    {"rdma_create_srq_ex", "srq"},
    {"create_ah", "ah"},
    {"create_ah_from_wc", "ah"},
    {"create_wq", "wq"},
    {"alloc_dm", "dm"},
    {"import_dm", "dm"},
    {"create_flow", "flow"},
    {"open_xrcd", "xrcd"},
    {"alloc_td", "td"},
    {"create_counters", "counters"},
    {"rdma_create_event_channel", "channel"},
    {"rdma_create_id", "id"},
    {"rdma_create_ep", "id"},
    {"rdma_get_request", "id"},
};

constexpr CallOfObject kDestroyers[] = {
    {"close_device", "context"},
    {"unimport_pd", "pd"},
    {"dealloc_pd", "pd"},
    {"dereg_mr", "mr"},
    {"unimport_mr", "mr"},
    {"rdma_dereg_mr", "mr"},
    {"dealloc_mw", "mw"},
    {"destroy_cq", "cq"},
    {"destroy_comp_channel", "compchannel"},
    {"destroy_qp", "qp"},
    {"rdma_destroy_qp", "qp"},
    {"destroy_srq", "srq"},
    {"rdma_destroy_srq", "srq"},
    {"destroy_ah", "ah"},
    {"destroy_wq", "wq"},
    {"free_dm", "dm"},
    {"unimport_dm", "dm"},
    {"destroy_flow", "flow"},
    {"close_xrcd", "xrcd"},
    {"dealloc_td", "td"},
    {"destroy_counters", "counters"},
    {"rdma_destroy_event_channel", "channel"},
    {"rdma_destroy_id", "id"},
    {"rdma_destroy_ep", "id"},
};

template <size_t size>
std::string_view KindIn(const CallOfObject (&table)[size], std::string_view what) {
  const auto* const it = std::ranges::find(table, what, &CallOfObject::call);
  return it == std::end(table) ? std::string_view() : it->kind;
}

}  // namespace

std::string_view NameIn(std::string_view text) {
  const std::string_view name = text.substr(0, text.find('.'));
  const size_t digits = name.find_first_of("0123456789");
  if (digits == name.npos || name.find_first_not_of("0123456789", digits) != name.npos) return {};
  return std::ranges::find(kKinds, name.substr(0, digits)) == kKinds.end() ? std::string_view()
                                                                           : name;
}

std::string_view KindOfName(std::string_view text) {
  const std::string_view name = NameIn(text);
  return name.substr(0, std::min(name.find_first_of("0123456789"), name.size()));
}

std::string_view KindCreatedBy(std::string_view what) { return KindIn(kCreators, what); }
std::string_view KindDestroyedBy(std::string_view what) { return KindIn(kDestroyers, what); }

}  // namespace rdmaemu::trace_tools
