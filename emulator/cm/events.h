// Events of RDMA CM ids as rdma_ucm_event_resp, filled as in ucma_create_uevent. Their numbers and
// names are those of rdma_cma.h and rdma_event_str(3).
#pragma once

#include <cstdint>
#include <string>

#include "emulator/base/cm_event_names.h"
#include "emulator/base/uapi.h"
#include "emulator/cm/cm.h"

namespace rdmaemu::cm {

enum class EventType : uint32_t {
  kAddrResolved,
  kAddrError,
  kRouteResolved,
  kRouteError,
  kConnectRequest,
  kConnectResponse,
  kConnectError,
  kUnreachable,
  kRejected,
  kEstablished,
  kDisconnected,
  kDeviceRemoval,
  kMulticastJoin,
  kMulticastError,
  kAddrChange,
  kTimewaitExit,
  kAddrinfoResolved,  // created by librdmacm, as the next
  kAddrinfoError,
  kUser,  // written by programs
  kInternal,
};

inline const char* EventName(EventType type) { return CmEventName(static_cast<uint32_t>(type)); }

// An event that is pending on a channel.
struct PendingEvent {
  uint32_t id = 0;         // counts the event in its events_reported; a CONNECT_REQUEST's listener
  uint32_t new_id = 0;     // the request's id, for a CONNECT_REQUEST
  uint32_t multicast = 0;  // the membership, for a MULTICAST_JOIN
  rdma_ucm_event_resp response = {};
  EventWait wait = {};

  EventType type() const { return static_cast<EventType>(response.event); }
};

}  // namespace rdmaemu::cm
