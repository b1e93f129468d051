// The additions of rdma-core 57 to 65 to verbs.h, for builds with older headers: the functions of
// the nodes IBVERBS_1.15 to 1.18, and the layouts of the structs that their callers fill.
//
// A header of rdma-core 65 may also be included: this file only declares the structs of verbs.h,
// and gives the layouts other names. struct verbs_context grew at its front, by six operations
// (alloc_dmah to free_buf). Only libibverbs itself calls them, through functions of these nodes.
// The contexts of this library are as long as the header of the build says (`sz`).
// verbs_get_ctx_op() of a newer program therefore reports that a context lacks the six operations.
//
// Source of each layout: sizes and offsets of infiniband/verbs.h of rdma-core 65.0 (libibverbs-dev
// 65.0-1.1 of Debian). Source of the behaviour: ibv_alloc_buf(3) and ibv_reg_mr(3) of that package.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

extern "C" {
struct ibv_buf;
struct ibv_comp_cntr;
struct ibv_comp_cntr_caps;
struct ibv_comp_cntr_init_attr;
struct ibv_dmah;
struct ibv_dmah_init_attr;
struct ibv_mr_init_attr;
struct ibv_qp_attach_comp_cntr_attr;

// IBVERBS_1.15
ibv_dmah* ibv_alloc_dmah(ibv_context* context, ibv_dmah_init_attr* attr);
int ibv_dealloc_dmah(ibv_dmah* dmah);
ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* mr_init_attr);

// IBVERBS_1.16
int ibv_dm_export_dmabuf_fd(ibv_dm* dm);
int ibv_query_port_speed(ibv_context* context, uint32_t port_num, uint64_t* port_speed);

// IBVERBS_1.17
void* ibv_alloc_buf(ibv_pd* pd, size_t size, ibv_buf** buf);
void ibv_free_buf(ibv_buf* buf);
ibv_mr* ibv_reg_buf_mr(ibv_pd* pd, ibv_buf* buf, void* addr, size_t length, int access);

// IBVERBS_1.18
int ibv_export_buf_dmabuf_fd(ibv_buf* buf);
int _ibv_query_comp_cntr_caps(ibv_context* context, ibv_comp_cntr_caps* caps, size_t caps_size);
ibv_comp_cntr* ibv_create_comp_cntr(ibv_context* context, ibv_comp_cntr_init_attr* cc_attr);
int ibv_destroy_comp_cntr(ibv_comp_cntr* comp_cntr);
int ibv_set_comp_cntr(ibv_comp_cntr* comp_cntr, uint64_t value);
int ibv_set_err_comp_cntr(ibv_comp_cntr* comp_cntr, uint64_t value);
int ibv_inc_comp_cntr(ibv_comp_cntr* comp_cntr, uint64_t amount);
int ibv_inc_err_comp_cntr(ibv_comp_cntr* comp_cntr, uint64_t amount);
int ibv_read_comp_cntr(ibv_comp_cntr* comp_cntr, uint64_t* value);
int ibv_read_err_comp_cntr(ibv_comp_cntr* comp_cntr, uint64_t* value);
int ibv_qp_attach_comp_cntr(ibv_qp* qp, ibv_comp_cntr* comp_cntr,
                            ibv_qp_attach_comp_cntr_attr* attr);
}

namespace rdmaemu::shim::newer {

// Bits of RegisterMr::fields: which fields the caller has set (enum ibv_mr_init_attr_mask).
inline constexpr uint64_t kHasIova = 1 << 0;
inline constexpr uint64_t kHasAddress = 1 << 1;
inline constexpr uint64_t kHasDescriptor = 1 << 2;
inline constexpr uint64_t kHasDescriptorOffset = 1 << 3;
inline constexpr uint64_t kHasDmaHandle = 1 << 4;
inline constexpr uint64_t kHasBuffer = 1 << 5;
inline constexpr uint64_t kKnownFields = (1 << 6) - 1;

// The layout of struct ibv_mr_init_attr. A program of rdma-core 57 to 64 has a shorter struct. Read
// a field only if its bit is set.
struct RegisterMr {
  size_t length;
  int access;
  uint64_t fields;  // comp_mask
  uint64_t iova;
  void* address;
  int descriptor;  // of a DMA-buf
  uint64_t descriptor_offset;
  ibv_dmah* dma_handle;
  ibv_buf* buffer;
};
static_assert(sizeof(void*) != 8 ||
              (offsetof(RegisterMr, fields) == 16 &&
               offsetof(RegisterMr, descriptor_offset) == 48 && sizeof(RegisterMr) == 72));

inline const RegisterMr& LayoutOf(const ibv_mr_init_attr* attributes) {
  return *reinterpret_cast<const RegisterMr*>(attributes);
}

// The end of struct ibv_qp_ex since rdma-core 46: wr_flush behind wr_atomic_write.
struct QpEx {
  std::byte before[offsetof(ibv_qp_ex, wr_atomic_write) + sizeof(void*)];
  void (*wr_flush)(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, size_t len, uint8_t type,
                   uint8_t level);
};
static_assert(offsetof(QpEx, wr_flush) == offsetof(ibv_qp_ex, wr_atomic_write) + sizeof(void*));

}  // namespace rdmaemu::shim::newer
