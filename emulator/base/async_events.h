// The names of asynchronous events (ibv_event_type), and the kind of object of each.
#pragma once

#include <array>

#include "emulator/base/uapi.h"

namespace rdmaemu {

enum class EventObject : uint8_t { kCq, kQp, kSrq, kWq, kPort, kDevice };

struct AsyncEventKind {
  const char* name;
  EventObject of;
};

// In the order of ibv_event_type.
inline constexpr std::array kAsyncEvents = {
    AsyncEventKind{"IBV_EVENT_CQ_ERR", EventObject::kCq},
    AsyncEventKind{"IBV_EVENT_QP_FATAL", EventObject::kQp},
    AsyncEventKind{"IBV_EVENT_QP_REQ_ERR", EventObject::kQp},
    AsyncEventKind{"IBV_EVENT_QP_ACCESS_ERR", EventObject::kQp},
    AsyncEventKind{"IBV_EVENT_COMM_EST", EventObject::kQp},
    AsyncEventKind{"IBV_EVENT_SQ_DRAINED", EventObject::kQp},
    AsyncEventKind{"IBV_EVENT_PATH_MIG", EventObject::kQp},
    AsyncEventKind{"IBV_EVENT_PATH_MIG_ERR", EventObject::kQp},
    AsyncEventKind{"IBV_EVENT_DEVICE_FATAL", EventObject::kDevice},
    AsyncEventKind{"IBV_EVENT_PORT_ACTIVE", EventObject::kPort},
    AsyncEventKind{"IBV_EVENT_PORT_ERR", EventObject::kPort},
    AsyncEventKind{"IBV_EVENT_LID_CHANGE", EventObject::kPort},
    AsyncEventKind{"IBV_EVENT_PKEY_CHANGE", EventObject::kPort},
    AsyncEventKind{"IBV_EVENT_SM_CHANGE", EventObject::kPort},
    AsyncEventKind{"IBV_EVENT_SRQ_ERR", EventObject::kSrq},
    AsyncEventKind{"IBV_EVENT_SRQ_LIMIT_REACHED", EventObject::kSrq},
    AsyncEventKind{"IBV_EVENT_QP_LAST_WQE_REACHED", EventObject::kQp},
    AsyncEventKind{"IBV_EVENT_CLIENT_REREGISTER", EventObject::kPort},
    AsyncEventKind{"IBV_EVENT_GID_CHANGE", EventObject::kPort},
    AsyncEventKind{"IBV_EVENT_WQ_FATAL", EventObject::kWq},
};
static_assert(kAsyncEvents.size() == IBV_EVENT_WQ_FATAL + 1);

inline const char* AsyncEventName(ibv_event_type type) {
  return static_cast<size_t>(type) < kAsyncEvents.size() ? kAsyncEvents[type].name : "unknown";
}

}  // namespace rdmaemu
