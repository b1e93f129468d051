#include "emulator/verbs/event_name.h"

#include <array>

namespace rdmaemu {
namespace {

// In the order of ibv_event_type.
constexpr std::array kNames = {"IBV_EVENT_CQ_ERR",
                               "IBV_EVENT_QP_FATAL",
                               "IBV_EVENT_QP_REQ_ERR",
                               "IBV_EVENT_QP_ACCESS_ERR",
                               "IBV_EVENT_COMM_EST",
                               "IBV_EVENT_SQ_DRAINED",
                               "IBV_EVENT_PATH_MIG",
                               "IBV_EVENT_PATH_MIG_ERR",
                               "IBV_EVENT_DEVICE_FATAL",
                               "IBV_EVENT_PORT_ACTIVE",
                               "IBV_EVENT_PORT_ERR",
                               "IBV_EVENT_LID_CHANGE",
                               "IBV_EVENT_PKEY_CHANGE",
                               "IBV_EVENT_SM_CHANGE",
                               "IBV_EVENT_SRQ_ERR",
                               "IBV_EVENT_SRQ_LIMIT_REACHED",
                               "IBV_EVENT_QP_LAST_WQE_REACHED",
                               "IBV_EVENT_CLIENT_REREGISTER",
                               "IBV_EVENT_GID_CHANGE",
                               "IBV_EVENT_WQ_FATAL"};
static_assert(kNames.size() == IBV_EVENT_WQ_FATAL + 1);

}  // namespace

const char* AsyncEventName(ibv_event_type type) {
  return static_cast<size_t>(type) < kNames.size() ? kNames[type] : "unknown";
}

}  // namespace rdmaemu
