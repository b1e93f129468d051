// Writing receive requests into a ring, for queue pairs and shared receive queues alike.
#pragma once

#include <infiniband/verbs.h>

#include "emulator/abi/ring.h"

namespace rdmaemu::shim {

// Posts a list under the queue's lock; the queue takes `entries` requests. Errors as rxe_post_recv:
// EINVAL for too many SGEs, ENOMEM for a full queue; *bad is then the first that was not posted.
int PostReceives(Ring& ring, uint32_t entries, uint32_t max_sge, ibv_recv_wr* wr,
                 ibv_recv_wr** bad);

}  // namespace rdmaemu::shim
