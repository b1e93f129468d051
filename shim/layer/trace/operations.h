// The operations of objects (originals.h), replaced by recording functions. The layer changes
// nothing else in the object of the library behind.
#pragma once

#include <infiniband/verbs.h>

#include "shim/layer/originals.h"

namespace rdmaemu::layer::trace {

// Replaces the operations of an object that a call has just returned. Does nothing for results of
// other types.
void Adopt(ibv_context* context);
void Adopt(ibv_cq_ex* cq);
void Adopt(ibv_qp_ex* qp);
void Adopt(ibv_wq* wq);
void Adopt(ibv_dm* dm);
void Adopt(ibv_qp* qp);  // for the hashes of its payloads
template <class T>
void Adopt(const T&) {}

}  // namespace rdmaemu::layer::trace
