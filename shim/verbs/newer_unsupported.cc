// Functions of rdma-core 57 to 65 that fail with EOPNOTSUPP, as on rdma_rxe: DMA handles,
// completion counters, the speed of ports, and device memory as a DMA-buf.

#include "shim/verbs/newer_abi.h"
#include "shim/verbs/objects.h"

using namespace rdmaemu::shim;

namespace {

int Refused() { return ErrnoWith(EOPNOTSUPP); }

}  // namespace

RDMAEMU_EXPORT ibv_dmah* ibv_alloc_dmah(ibv_context*, ibv_dmah_init_attr*) {
  return NullWith(EOPNOTSUPP);
}
RDMAEMU_EXPORT int ibv_dealloc_dmah(ibv_dmah*) { return Refused(); }

RDMAEMU_EXPORT int ibv_dm_export_dmabuf_fd(ibv_dm*) { return MinusOneWith(EOPNOTSUPP); }
RDMAEMU_EXPORT int ibv_query_port_speed(ibv_context*, uint32_t, uint64_t*) { return Refused(); }

RDMAEMU_EXPORT int _ibv_query_comp_cntr_caps(ibv_context*, ibv_comp_cntr_caps*, size_t) {
  return Refused();
}
RDMAEMU_EXPORT ibv_comp_cntr* ibv_create_comp_cntr(ibv_context*, ibv_comp_cntr_init_attr*) {
  return NullWith(EOPNOTSUPP);
}
RDMAEMU_EXPORT int ibv_destroy_comp_cntr(ibv_comp_cntr*) { return Refused(); }
RDMAEMU_EXPORT int ibv_set_comp_cntr(ibv_comp_cntr*, uint64_t) { return Refused(); }
RDMAEMU_EXPORT int ibv_set_err_comp_cntr(ibv_comp_cntr*, uint64_t) { return Refused(); }
RDMAEMU_EXPORT int ibv_inc_comp_cntr(ibv_comp_cntr*, uint64_t) { return Refused(); }
RDMAEMU_EXPORT int ibv_inc_err_comp_cntr(ibv_comp_cntr*, uint64_t) { return Refused(); }
RDMAEMU_EXPORT int ibv_read_comp_cntr(ibv_comp_cntr*, uint64_t*) { return Refused(); }
RDMAEMU_EXPORT int ibv_read_err_comp_cntr(ibv_comp_cntr*, uint64_t*) { return Refused(); }
RDMAEMU_EXPORT int ibv_qp_attach_comp_cntr(ibv_qp*, ibv_comp_cntr*, ibv_qp_attach_comp_cntr_attr*) {
  return Refused();
}
