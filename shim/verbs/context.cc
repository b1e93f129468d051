// Open devices: their operations and the queries for device, port, GID and P_Key tables.

#include <endian.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "shim/client/system.h"
#include "shim/client/uninterrupted.h"
#include "shim/verbs/objects.h"
#include "shim/verbs/payloads.h"
#include "shim/verbs/private_nodes.h"
#include "shim/verbs/watched.h"

#undef ibv_query_port

namespace rdmaemu::shim {
namespace {

// An operation that the device does not support.
template <class F>
struct Unsupported;
template <class R, class... A>
struct Unsupported<R (*)(A...)> {
  static R Call(A...) {
    if constexpr (std::is_pointer_v<R>) {
      return NullWith(EOPNOTSUPP);
    } else {
      return EOPNOTSUPP;
    }
  }
};
template <class F>
void SetUnsupported(F& operation) {
  operation = &Unsupported<F>::Call;
}

}  // namespace

void SetOperations(Context& context) {
  verbs_context& v = context.extended;
  v.query_port = QueryPort;
  v.query_device_ex = QueryDevice;
  v.query_rt_values = QueryRtValues;
  v.create_cq_ex = CreateCqEx;
  v.create_qp_ex = CreateQpEx;
  SetUnsupported(v.advise_mr);
  SetUnsupported(v.alloc_null_mr);
  SetUnsupported(v.read_counters);
  SetUnsupported(v.attach_counters_point_flow);
  SetUnsupported(v.create_counters);
  SetUnsupported(v.destroy_counters);
  SetUnsupported(v.reg_dm_mr);
  SetUnsupported(v.alloc_dm);
  SetUnsupported(v.free_dm);
  SetUnsupported(v.modify_flow_action_esp);
  SetUnsupported(v.destroy_flow_action);
  SetUnsupported(v.create_flow_action_esp);
  SetUnsupported(v.modify_qp_rate_limit);
  SetUnsupported(v.alloc_parent_domain);
  SetUnsupported(v.dealloc_td);
  SetUnsupported(v.alloc_td);
  SetUnsupported(v.modify_cq);
  SetUnsupported(v.post_srq_ops);
  SetUnsupported(v.destroy_rwq_ind_table);
  SetUnsupported(v.create_rwq_ind_table);
  SetUnsupported(v.destroy_wq);
  SetUnsupported(v.modify_wq);
  SetUnsupported(v.create_wq);
  SetUnsupported(v.ibv_destroy_flow);
  SetUnsupported(v.ibv_create_flow);
  SetUnsupported(v.open_qp);
  SetUnsupported(v.get_srq_num);
  SetUnsupported(v.create_srq_ex);
  SetUnsupported(v.open_xrcd);
  SetUnsupported(v.close_xrcd);
  v.sz = sizeof v;
  ibv_context_ops& ops = v.context.ops;
  ops.alloc_mw = AllocMw;
  ops.bind_mw = BindMw;
  ops.dealloc_mw = DeallocMw;
  ops.poll_cq = WatchedPollCq;
  ops.req_notify_cq = WatchedRequestNotify;
  ops.post_srq_recv = WatchedPostSrqRecv;
  ops.post_send = WatchedPostSend;
  ops.post_recv = WatchedPostRecv;
}

int QueryPort(ibv_context* context, uint8_t port, ibv_port_attr* out, size_t out_bytes) {
  QueryPortOut reply{};
  const int error = client::Call(CallOp::kQueryPort, QueryPortIn{Of(context)->handle, port}, reply);
  if (error != 0) return ErrnoWith(error);
  memset(out, 0, out_bytes);
  memcpy(out, &reply.attr, std::min(out_bytes, sizeof reply.attr));
  return 0;
}

int QueryDevice(ibv_context* context, const ibv_query_device_ex_input* input,
                ibv_device_attr_ex* out, size_t out_bytes) {
  if (input != nullptr && input->comp_mask != 0) return EINVAL;
  if (out_bytes < sizeof out->orig_attr) return EINVAL;
  QueryDeviceOut reply{};
  const int error = CallOnHandle(CallOp::kQueryDevice, context, HandleOf(context), reply);
  if (error != 0) return ErrnoWith(error);
  reply.attr.orig_attr.fw_ver[sizeof reply.attr.orig_attr.fw_ver - 1] = '\0';
  memset(static_cast<void*>(out), 0, out_bytes);
  memcpy(static_cast<void*>(out), &reply.attr, std::min(out_bytes, sizeof reply.attr));
  return 0;
}

namespace {

// Reads entries [first, first + count) of a port's GID table.
int QueryGids(ibv_context* context, uint32_t port, uint32_t first, uint32_t count,
              QueryGidsOut& out) {
  const int error =
      client::Call(CallOp::kQueryGids, QueryGidsIn{Of(context)->handle, port, first, count}, out);
  return error != 0 ? error : out.count > kMaxGidsPerCall ? EPROTO : 0;
}

bool IsEmpty(const ibv_gid_entry& entry) {
  return entry.gid.global.subnet_prefix == 0 && entry.gid.global.interface_id == 0;
}

// Reads one entry. Fails with ENODATA if it is empty.
int QueryGid(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry& entry) {
  QueryGidsOut reply{};
  const int error = QueryGids(context, port, index, 1, reply);
  if (error != 0) return error;
  if (reply.count == 0) return EINVAL;
  entry = reply.entries[0];
  return IsEmpty(entry) ? ENODATA : 0;
}

// Returns true if the descriptor is /dev/null. Returns false if the program has closed ours and
// opened another file with the same number.
bool IsNull(int fd) {
  struct stat status;
  return fd >= 0 && fstat(fd, &status) == 0 && S_ISCHR(status.st_mode) &&
         status.st_rdev == makedev(1, 3);
}

}  // namespace
}  // namespace rdmaemu::shim

using namespace rdmaemu;
using namespace rdmaemu::shim;

RDMAEMU_EXPORT ibv_context* ibv_open_device(ibv_device* device) {
  Context* context = New<Context>();
  if (context == nullptr) return nullptr;
  const int cmd_fd = client::SysAboveStandard(open(kCommandFile, O_RDWR | O_CLOEXEC));
  if (cmd_fd < 0 && (errno == EMFILE || errno == ENFILE)) {
    free(context);
    return NullWith(errno);
  }
  OpenDeviceOut reply{};
  int async_fd = -1;
  int error =
      client::Call(CallOp::kOpenDevice, OpenDeviceIn{Of(device)->index, 0}, reply, &async_fd, 1);
  if (error != 0) {
    if (cmd_fd >= 0) close(cmd_fd);
    free(context);
    return NullWith(error);
  }
  context->handle = reply.context;
  context->max_inline_bytes = reply.max_inline_bytes;
  context->missing = reply.missing;
  context->max_read_sges = reply.max_read_sges;
  context->clock_khz = reply.clock_khz;
  context->clock_mask = reply.clock_mask;
  SetOperations(*context);
  ibv_context& base = context->extended.context;
  base.device = device;
  base.async_fd = async_fd;
  base.cmd_fd = cmd_fd;
  base.num_comp_vectors = static_cast<int>(reply.completion_vectors);
  base.abi_compat = __VERBS_ABI_IS_EXTENDED;
  pthread_mutex_init(&base.mutex, nullptr);
  return &base;
}

RDMAEMU_EXPORT int ibv_close_device(ibv_context* context) {
  // The real function cannot fail, because closing the descriptor frees the rest.
  ForgetBeforeFork(context);
  client::Uninterrupted(
      [&] { return CallOnHandle(CallOp::kCloseDevice, context, HandleOf(context)); });
  client::CloseCounter(context->async_fd);
  if (IsNull(context->cmd_fd)) close(context->cmd_fd);
  pthread_mutex_destroy(&context->mutex);
  free(Of(context));
  return 0;
}

RDMAEMU_EXPORT int ibv_query_device(ibv_context* context, ibv_device_attr* out) {
  ibv_device_attr_ex all;
  const int error = QueryDevice(context, nullptr, &all, sizeof all);
  if (error == 0) *out = all.orig_attr;
  return error;
}

// Programs built before port_cap_flags2 have a struct that ends where that field begins.
RDMAEMU_EXPORT int ibv_query_port(ibv_context* context, uint8_t port, _compat_ibv_port_attr* out) {
  return QueryPort(context, port, reinterpret_cast<ibv_port_attr*>(out),
                   offsetof(ibv_port_attr, port_cap_flags2));
}

RDMAEMU_EXPORT int _ibv_query_gid_ex(ibv_context* context, uint32_t port, uint32_t index,
                                     ibv_gid_entry* out, uint32_t flags, size_t out_bytes) {
  if (flags != 0) return ErrnoWith(EOPNOTSUPP);
  if (out_bytes < sizeof *out) return ErrnoWith(EINVAL);
  ibv_gid_entry entry{};
  const int error = QueryGid(context, port, index, entry);
  if (error != 0) return ErrnoWith(error);
  memset(out, 0, out_bytes);
  *out = entry;
  return 0;
}

// Returns the number of valid entries, or a negative errno.
RDMAEMU_EXPORT ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* out,
                                            size_t max_entries, uint32_t flags,
                                            size_t entry_bytes) {
  if (flags != 0) return -ErrnoWith(EOPNOTSUPP);
  if (entry_bytes < sizeof *out) return -ErrnoWith(EINVAL);
  ibv_device_attr device;
  int error = ibv_query_device(context, &device);
  if (error != 0) return -error;
  size_t filled = 0;
  for (uint32_t port = 1; port <= device.phys_port_cnt; port++) {
    ibv_port_attr attr;
    error = QueryPort(context, static_cast<uint8_t>(port), &attr, sizeof attr);
    if (error != 0) return -error;
    const uint32_t length = static_cast<uint32_t>(std::max(attr.gid_tbl_len, 0));
    for (uint32_t first = 0; first < length; first += kMaxGidsPerCall) {
      QueryGidsOut reply{};
      error = QueryGids(context, port, first, std::min(kMaxGidsPerCall, length - first), reply);
      if (error != 0) return -ErrnoWith(error);
      for (uint32_t i = 0; i < reply.count; i++) {
        if (IsEmpty(reply.entries[i])) continue;
        if (filled == max_entries) return -ErrnoWith(EINVAL);
        char* place = reinterpret_cast<char*>(out) + filled++ * entry_bytes;
        memset(place, 0, entry_bytes);
        memcpy(place, &reply.entries[i], sizeof *out);
      }
    }
  }
  return static_cast<ssize_t>(filled);
}

RDMAEMU_EXPORT int ibv_query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) {
  ibv_gid_entry entry{};
  const int error = QueryGid(context, port, static_cast<uint32_t>(index), entry);
  // An empty entry is a zero GID here. In the extended call, an empty entry is an error.
  if (error != 0 && error != ENODATA) return MinusOneWith(error);
  *gid = entry.gid;
  return 0;
}

// Returns a GID's type. Exported in the private version nodes, for ibv_devinfo. Type 0: IB, RoCE v1
// and empty entries. Type 1: RoCE v2.
RDMAEMU_EXPORT int ibv_query_gid_type(ibv_context* context, uint8_t port, unsigned index,
                                      int* type) {
  ibv_gid_entry entry{};
  const int error = QueryGid(context, port, index, entry);
  if (error != 0 && error != ENODATA) return MinusOneWith(error);
  *type = error == 0 && entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 1 : 0;
  return 0;
}
RDMAEMU_IN_ALL_NODES(ibv_query_gid_type)

RDMAEMU_EXPORT int ibv_query_pkey(ibv_context* context, uint8_t port, int index, __be16* pkey) {
  QueryPkeyOut reply{};
  const int error =
      client::Call(CallOp::kQueryPkey, QueryPkeyIn{Of(context)->handle, port, index, 0}, reply);
  if (error != 0) return MinusOneWith(error);
  *pkey = reply.pkey_be;
  return 0;
}

RDMAEMU_EXPORT int ibv_get_pkey_index(ibv_context* context, uint8_t port, __be16 pkey) {
  __be16 found;
  for (int i = 0; i < UINT16_MAX && ibv_query_pkey(context, port, i, &found) == 0; i++) {
    if (found == pkey) return i;
  }
  return -1;
}
