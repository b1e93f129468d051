// The private nodes, IBVERBS_PRIVATE_34 to 65. Provider libraries (libmlx5, libefa) are linked
// against one of them with BIND_NOW. A program that loads such a library therefore needs these
// names. No provider ever runs here. All functions except the registration therefore fail, and do
// not check their arguments. Source of the names: the exports of libibverbs1 65.0-1.1 (Debian) and
// the imports of its providers.

#include "shim/verbs/objects.h"
#include "shim/verbs/private_nodes.h"

using namespace rdmaemu::shim;

// Providers read this when a device is removed.
extern "C" {
extern __attribute__((visibility("default"))) bool verbs_allow_disassociate_destroy;
bool verbs_allow_disassociate_destroy = false;
}
RDMAEMU_IN_ALL_NODES(verbs_allow_disassociate_destroy)

// libmlx5 and libefa register themselves in their constructors. The name contains the release.
RDMAEMU_EXPORT void verbs_register_driver_34(const void*) {}
RDMAEMU_EXPORT void verbs_register_driver_57(const void*) {}
RDMAEMU_EXPORT void verbs_register_driver_59(const void*) {}
RDMAEMU_EXPORT void verbs_register_driver_64(const void*) {}
RDMAEMU_EXPORT void verbs_register_driver_65(const void*) {}

RDMAEMU_EXPORT void __verbs_log(void*, uint32_t, const char*, ...) {}
RDMAEMU_EXPORT void verbs_set_ops(void*, const void*) {}
RDMAEMU_EXPORT void verbs_uninit_context(void*) {}
RDMAEMU_EXPORT void verbs_init_cq(ibv_cq*, ibv_context*, ibv_comp_channel*, void*) {}
RDMAEMU_EXPORT unsigned __ioctl_final_num_attrs(unsigned count, void*) { return count; }
RDMAEMU_EXPORT void* _verbs_init_and_alloc_context(ibv_device*, int, size_t, void*, uint32_t) {
  return NullWith(EOPNOTSUPP);
}
RDMAEMU_EXPORT ibv_context* verbs_open_device(ibv_device*, void*) { return NullWith(EOPNOTSUPP); }
RDMAEMU_EXPORT int ibv_read_ibdev_sysfs_file(char*, size_t, void*, const char*, ...) {
  return MinusOneWith(EOPNOTSUPP);
}

RDMAEMU_IN_ALL_NODES(__ioctl_final_num_attrs)
RDMAEMU_IN_ALL_NODES(__verbs_log)
RDMAEMU_IN_ALL_NODES(_verbs_init_and_alloc_context)
RDMAEMU_IN_ALL_NODES(ibv_read_ibdev_sysfs_file)
RDMAEMU_IN_ALL_NODES(verbs_init_cq)
RDMAEMU_IN_ALL_NODES(verbs_open_device)
RDMAEMU_IN_ALL_NODES(verbs_set_ops)
RDMAEMU_IN_ALL_NODES(verbs_uninit_context)

#define RDMAEMU_REFUSE(name)                                  \
  RDMAEMU_EXPORT int name() { return ErrnoWith(EOPNOTSUPP); } \
  RDMAEMU_IN_ALL_NODES(name)

RDMAEMU_REFUSE(execute_ioctl)
RDMAEMU_REFUSE(ibv_cmd_advise_mr)
RDMAEMU_REFUSE(ibv_cmd_alloc_dm)
RDMAEMU_REFUSE(ibv_cmd_alloc_mw)
RDMAEMU_REFUSE(ibv_cmd_alloc_pd)
RDMAEMU_REFUSE(ibv_cmd_attach_mcast)
RDMAEMU_REFUSE(ibv_cmd_close_xrcd)
RDMAEMU_REFUSE(ibv_cmd_create_ah)
RDMAEMU_REFUSE(ibv_cmd_create_counters)
RDMAEMU_REFUSE(ibv_cmd_create_cq)
RDMAEMU_REFUSE(ibv_cmd_create_cq_ex)
RDMAEMU_REFUSE(ibv_cmd_create_cq_ex2)  // rdma-core 56
RDMAEMU_REFUSE(ibv_cmd_create_flow)
RDMAEMU_REFUSE(ibv_cmd_create_flow_action_esp)
RDMAEMU_REFUSE(ibv_cmd_create_qp)
RDMAEMU_REFUSE(ibv_cmd_create_qp_ex2)
RDMAEMU_REFUSE(ibv_cmd_create_qp_ex)
RDMAEMU_REFUSE(ibv_cmd_create_rwq_ind_table)
RDMAEMU_REFUSE(ibv_cmd_create_srq)
RDMAEMU_REFUSE(ibv_cmd_create_srq_ex)
RDMAEMU_REFUSE(ibv_cmd_create_wq)
RDMAEMU_REFUSE(ibv_cmd_dealloc_mw)
RDMAEMU_REFUSE(ibv_cmd_dealloc_pd)
RDMAEMU_REFUSE(ibv_cmd_dereg_mr)
RDMAEMU_REFUSE(ibv_cmd_destroy_ah)
RDMAEMU_REFUSE(ibv_cmd_destroy_counters)
RDMAEMU_REFUSE(ibv_cmd_destroy_cq)
RDMAEMU_REFUSE(ibv_cmd_destroy_flow)
RDMAEMU_REFUSE(ibv_cmd_destroy_flow_action)
RDMAEMU_REFUSE(ibv_cmd_destroy_qp)
RDMAEMU_REFUSE(ibv_cmd_destroy_rwq_ind_table)
RDMAEMU_REFUSE(ibv_cmd_destroy_srq)
RDMAEMU_REFUSE(ibv_cmd_destroy_wq)
RDMAEMU_REFUSE(ibv_cmd_detach_mcast)
RDMAEMU_REFUSE(ibv_cmd_free_dm)
RDMAEMU_REFUSE(ibv_cmd_get_context)
RDMAEMU_REFUSE(ibv_cmd_modify_cq)
RDMAEMU_REFUSE(ibv_cmd_modify_flow_action_esp)
RDMAEMU_REFUSE(ibv_cmd_modify_qp)
RDMAEMU_REFUSE(ibv_cmd_modify_qp_ex)
RDMAEMU_REFUSE(ibv_cmd_modify_srq)
RDMAEMU_REFUSE(ibv_cmd_modify_wq)
RDMAEMU_REFUSE(ibv_cmd_open_qp)
RDMAEMU_REFUSE(ibv_cmd_open_xrcd)
RDMAEMU_REFUSE(ibv_cmd_poll_cq)
RDMAEMU_REFUSE(ibv_cmd_post_recv)
RDMAEMU_REFUSE(ibv_cmd_post_send)
RDMAEMU_REFUSE(ibv_cmd_post_srq_recv)
RDMAEMU_REFUSE(ibv_cmd_query_context)
RDMAEMU_REFUSE(ibv_cmd_query_device_any)
RDMAEMU_REFUSE(ibv_cmd_query_mr)
RDMAEMU_REFUSE(ibv_cmd_query_port)
RDMAEMU_REFUSE(ibv_cmd_query_qp)
RDMAEMU_REFUSE(ibv_cmd_query_srq)
RDMAEMU_REFUSE(ibv_cmd_read_counters)
RDMAEMU_REFUSE(ibv_cmd_reg_dm_mr)
RDMAEMU_REFUSE(ibv_cmd_reg_dmabuf_mr)
RDMAEMU_REFUSE(ibv_cmd_reg_mr)
RDMAEMU_REFUSE(ibv_cmd_req_notify_cq)
RDMAEMU_REFUSE(ibv_cmd_rereg_mr)
RDMAEMU_REFUSE(ibv_cmd_resize_cq)

// Functions that are newer than rdma-core 56. Those of DMA-buf heaps return a pointer, an errno or
// nothing. Their callers check the first two for failure.
#define RDMAEMU_REFUSE_NEWER(result, name, answer) \
  RDMAEMU_EXPORT result name() { return answer; }  \
  RDMAEMU_IN_NODES_FROM_57(name)

RDMAEMU_REFUSE_NEWER(int, ibv_cmd_alloc_dmah, ErrnoWith(EOPNOTSUPP))
RDMAEMU_REFUSE_NEWER(int, ibv_cmd_create_comp_cntr, ErrnoWith(EOPNOTSUPP))
RDMAEMU_REFUSE_NEWER(int, ibv_cmd_destroy_comp_cntr, ErrnoWith(EOPNOTSUPP))
RDMAEMU_REFUSE_NEWER(int, ibv_cmd_export_dmabuf_fd, ErrnoWith(EOPNOTSUPP))
RDMAEMU_REFUSE_NEWER(int, ibv_cmd_free_dmah, ErrnoWith(EOPNOTSUPP))
RDMAEMU_REFUSE_NEWER(int, ibv_cmd_inc_comp_cntr, ErrnoWith(EOPNOTSUPP))
RDMAEMU_REFUSE_NEWER(int, ibv_cmd_inc_err_comp_cntr, ErrnoWith(EOPNOTSUPP))
RDMAEMU_REFUSE_NEWER(int, ibv_cmd_qp_attach_comp_cntr, ErrnoWith(EOPNOTSUPP))
RDMAEMU_REFUSE_NEWER(int, ibv_cmd_query_comp_cntr_caps, ErrnoWith(EOPNOTSUPP))
RDMAEMU_REFUSE_NEWER(int, ibv_cmd_query_port_speed, ErrnoWith(EOPNOTSUPP))
RDMAEMU_REFUSE_NEWER(int, ibv_cmd_read_comp_cntr, ErrnoWith(EOPNOTSUPP))
RDMAEMU_REFUSE_NEWER(int, ibv_cmd_read_err_comp_cntr, ErrnoWith(EOPNOTSUPP))
RDMAEMU_REFUSE_NEWER(int, ibv_cmd_reg_mr_ex, ErrnoWith(EOPNOTSUPP))
RDMAEMU_REFUSE_NEWER(int, ibv_cmd_set_comp_cntr, ErrnoWith(EOPNOTSUPP))
RDMAEMU_REFUSE_NEWER(int, ibv_cmd_set_err_comp_cntr, ErrnoWith(EOPNOTSUPP))
RDMAEMU_REFUSE_NEWER(void*, ibv_dmabuf_heap_alloc, NullWith(EOPNOTSUPP))
RDMAEMU_REFUSE_NEWER(void*, ibv_dmabuf_heap_cc_shared_init, NullWith(EOPNOTSUPP))
RDMAEMU_REFUSE_NEWER(void, ibv_dmabuf_heap_destroy, )
RDMAEMU_REFUSE_NEWER(void, ibv_dmabuf_heap_free, )
