// The mark of an RDMA CM event whose type a fault rule changed.
//
// The members of an event depend on the type that it naturally has: the uid of a multicast event
// names a membership, that of a connection request the listener. So the host tells that type in
// rdma_ucm_event_resp::reserved.
#pragma once

#include <rdma/rdma_user_cm.h>

#include <cstdint>

namespace rdmaemu {

// The host's half. Changes the type, and keeps the natural type of an event that has been changed
// before.
inline void ChangeEventType(rdma_ucm_event_resp& event, uint32_t type) {
  if (event.reserved == 0) event.reserved = event.event + 1;
  event.event = type;
}

// The program's half.
inline uint32_t NaturalEventType(const rdma_ucm_event_resp& event) {
  return event.reserved == 0 ? event.event : event.reserved - 1;
}

}  // namespace rdmaemu
