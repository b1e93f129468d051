// The functions of version IBVERBS_1.0, from before 2007. Their structs have another layout, and no
// current program uses them (none of 91 examined programs). ibv_get_device_list fails. Without a
// device the other functions cannot get valid arguments. Each function fails as its result type
// allows.

#include "shim/verbs/objects.h"

using namespace rdmaemu::shim;

// Uses the assembler, because only GCC has an attribute for symbol versions.
#define RDMAEMU_SYMBOL_VERSION(function, versioned) \
  __asm__(".symver " #function ", " versioned);     \
  extern "C" __attribute__((used))

#define RDMAEMU_OLD(result, name, answer)                  \
  RDMAEMU_SYMBOL_VERSION(old_##name, #name "@IBVERBS_1.0") \
  result old_##name() { answer; }

RDMAEMU_OLD(void, ibv_ack_async_event, return )
RDMAEMU_OLD(void, ibv_ack_cq_events, return )
RDMAEMU_OLD(void*, ibv_alloc_pd, return NullWith(EOPNOTSUPP))
RDMAEMU_OLD(int, ibv_attach_mcast, return ErrnoWith(EOPNOTSUPP))
RDMAEMU_OLD(int, ibv_close_device, return ErrnoWith(EOPNOTSUPP))
RDMAEMU_OLD(void*, ibv_create_ah, return NullWith(EOPNOTSUPP))
RDMAEMU_OLD(void*, ibv_create_cq, return NullWith(EOPNOTSUPP))
RDMAEMU_OLD(void*, ibv_create_qp, return NullWith(EOPNOTSUPP))
RDMAEMU_OLD(void*, ibv_create_srq, return NullWith(EOPNOTSUPP))
RDMAEMU_OLD(int, ibv_dealloc_pd, return ErrnoWith(EOPNOTSUPP))
RDMAEMU_OLD(int, ibv_dereg_mr, return ErrnoWith(EOPNOTSUPP))
RDMAEMU_OLD(int, ibv_destroy_ah, return ErrnoWith(EOPNOTSUPP))
RDMAEMU_OLD(int, ibv_destroy_cq, return ErrnoWith(EOPNOTSUPP))
RDMAEMU_OLD(int, ibv_destroy_qp, return ErrnoWith(EOPNOTSUPP))
RDMAEMU_OLD(int, ibv_destroy_srq, return ErrnoWith(EOPNOTSUPP))
RDMAEMU_OLD(int, ibv_detach_mcast, return ErrnoWith(EOPNOTSUPP))
RDMAEMU_OLD(void, ibv_free_device_list, return )
RDMAEMU_OLD(int, ibv_get_async_event, return MinusOneWith(EOPNOTSUPP))
RDMAEMU_OLD(int, ibv_get_cq_event, return MinusOneWith(EOPNOTSUPP))
RDMAEMU_OLD(uint64_t, ibv_get_device_guid, return 0)
RDMAEMU_OLD(void*, ibv_get_device_list, return NullWith(EOPNOTSUPP))
RDMAEMU_OLD(void*, ibv_get_device_name, return NullWith(EOPNOTSUPP))
RDMAEMU_OLD(int, ibv_modify_qp, return ErrnoWith(EOPNOTSUPP))
RDMAEMU_OLD(int, ibv_modify_srq, return ErrnoWith(EOPNOTSUPP))
RDMAEMU_OLD(void*, ibv_open_device, return NullWith(EOPNOTSUPP))
RDMAEMU_OLD(int, ibv_query_device, return ErrnoWith(EOPNOTSUPP))
RDMAEMU_OLD(int, ibv_query_gid, return MinusOneWith(EOPNOTSUPP))
RDMAEMU_OLD(int, ibv_query_pkey, return MinusOneWith(EOPNOTSUPP))
RDMAEMU_OLD(int, ibv_query_port, return ErrnoWith(EOPNOTSUPP))
RDMAEMU_OLD(int, ibv_query_qp, return ErrnoWith(EOPNOTSUPP))
RDMAEMU_OLD(int, ibv_query_srq, return ErrnoWith(EOPNOTSUPP))
RDMAEMU_OLD(void*, ibv_reg_mr, return NullWith(EOPNOTSUPP))
RDMAEMU_OLD(int, ibv_resize_cq, return ErrnoWith(EOPNOTSUPP))

// Providers from before 2010 register themselves with this function.
RDMAEMU_SYMBOL_VERSION(old_register_driver, "ibv_register_driver@IBVERBS_1.1")
void old_register_driver(const char*, void*) {}
