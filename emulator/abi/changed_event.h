// The mark of an RDMA CM event whose type a fault rule changed.
//
// The meaning of an event's members depends on its natural type. For example, the uid of a
// multicast event names a membership, and the uid of a connection request names the listener. The
// host therefore writes the natural type to rdma_ucm_event_resp::reserved.
#pragma once

#include <rdma/rdma_user_cm.h>

#include <cstdint>

namespace rdmaemu {

// Called by the host. Changes the type. Keeps the natural type of an event that was changed before.
inline void ChangeEventType(rdma_ucm_event_resp& event, uint32_t type) {
  if (event.reserved == 0) event.reserved = event.event + 1;
  event.event = type;
}

// Called by the program's library. Returns the natural type.
inline uint32_t NaturalEventType(const rdma_ucm_event_resp& event) {
  return event.reserved == 0 ? event.event : event.reserved - 1;
}

}  // namespace rdmaemu
