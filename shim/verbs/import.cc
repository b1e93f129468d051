// Objects of another process, handed over by descriptor and handle: rxe has none of this.

#include "shim/verbs/objects.h"

using rdmaemu::shim::NullWith;

RDMAEMU_EXPORT ibv_context* ibv_import_device(int) { return NullWith(EOPNOTSUPP); }
RDMAEMU_EXPORT ibv_pd* ibv_import_pd(ibv_context*, uint32_t) { return NullWith(EOPNOTSUPP); }
RDMAEMU_EXPORT ibv_mr* ibv_import_mr(ibv_pd*, uint32_t) { return NullWith(EOPNOTSUPP); }
RDMAEMU_EXPORT ibv_dm* ibv_import_dm(ibv_context*, uint32_t) { return NullWith(EOPNOTSUPP); }
// Nothing was imported, so that there is nothing to give back.
RDMAEMU_EXPORT void ibv_unimport_pd(ibv_pd*) {}
RDMAEMU_EXPORT void ibv_unimport_mr(ibv_mr*) {}
RDMAEMU_EXPORT void ibv_unimport_dm(ibv_dm*) {}
