// The door of memory. When a rule removes bytes of a request, the layer posts the request with an
// address outside its region. The device then fails the request itself, with all effects of such a
// failure. Thread-safe.
#pragma once

#include <infiniband/verbs.h>

namespace rdmaemu::layer::faults {

// Post requests of the program: ibv_post_send, ibv_post_recv and ibv_post_srq_recv. They call
// `next` to post.
int PostChecked(ibv_qp* qp, ibv_send_wr* list, ibv_send_wr** bad,
                int (*next)(ibv_qp*, ibv_send_wr*, ibv_send_wr**));
int PostChecked(ibv_qp* qp, ibv_recv_wr* list, ibv_recv_wr** bad,
                int (*next)(ibv_qp*, ibv_recv_wr*, ibv_recv_wr**));
int PostChecked(ibv_srq* srq, ibv_recv_wr* list, ibv_recv_wr** bad,
                int (*next)(ibv_srq*, ibv_recv_wr*, ibv_recv_wr**));

// Intercepts the registration of regions, and posting by ibv_wr_*.
void InstallMemoryDoor(void** (*slot_of)(const char*));

}  // namespace rdmaemu::layer::faults
