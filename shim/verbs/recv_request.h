// Writes receive requests into a ring, for queue pairs and shared receive queues.
#pragma once

#include <infiniband/verbs.h>

#include "emulator/abi/ring.h"

namespace rdmaemu::shim {

// The result of a post to a receive queue that a process has destroyed, or resized, that shares it
// since a fork. The receives are lost, as on rxe (measured), where no call tells the kernel of
// them.
inline constexpr int kPostedToNoQueue = 0;

// Posts a list of requests to a queue of `entries` entries. The caller holds the queue's lock.
// Fails as rxe_post_recv does: EINVAL for too many SGEs, ENOMEM for a full queue. *bad is then the
// first request that was not posted.
int PostReceives(Ring& ring, uint32_t entries, uint32_t max_sge, ibv_recv_wr* wr,
                 ibv_recv_wr** bad);

}  // namespace rdmaemu::shim
