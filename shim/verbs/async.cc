// Asynchronous events. The library fetches them from the host and handles acknowledgements itself.
// When the host dies, every open context gets one IBV_EVENT_DEVICE_FATAL.

#include "emulator/base/nothing_queued.h"
#include "shim/verbs/objects.h"

namespace rdmaemu::shim {
namespace {

enum class Affiliation { kCq, kQp, kSrq, kPortOrDevice };

Affiliation AffiliationOf(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR:
      return Affiliation::kCq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return Affiliation::kQp;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return Affiliation::kSrq;
    default:
      return Affiliation::kPortOrDevice;
  }
}

void SetElement(ibv_async_event& event, uint64_t cookie) {
  switch (AffiliationOf(event.event_type)) {
    case Affiliation::kCq:
      event.element.cq = FromCookie<ibv_cq>(cookie);
      break;
    case Affiliation::kQp:
      event.element.qp = FromCookie<ibv_qp>(cookie);
      break;
    case Affiliation::kSrq:
      event.element.srq = FromCookie<ibv_srq>(cookie);
      break;
    case Affiliation::kPortOrDevice:
      event.element.port_num = static_cast<int>(cookie);
      break;
  }
}

template <class Object>
void Acknowledge(Object& object, uint32_t& completed) {
  pthread_mutex_lock(&object.mutex);
  completed++;
  pthread_cond_signal(&object.cond);
  pthread_mutex_unlock(&object.mutex);
}

}  // namespace
}  // namespace rdmaemu::shim

using namespace rdmaemu;
using namespace rdmaemu::shim;

RDMAEMU_EXPORT int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  for (;;) {
    int error = rdmaemu_client_wait(context->async_fd);
    if (error != 0 && error != EIO) return MinusOneWith(error);
    GetAsyncEventOut reply{};
    if (error == 0) {
      error = CallOnHandle(CallOp::kGetAsyncEvent, context, HandleOf(context), reply);
      // The event is still queued.
      if (error != 0 && error != kNothingQueued) rdmaemu_client_put_back(context->async_fd);
    }
    if (error == 0) {
      event->event_type = static_cast<ibv_event_type>(reply.type);
      SetElement(*event, reply.cookie);
      return 0;
    }
    // The event's object was destroyed after the counter was raised. Wait for the next event.
    if (error == kNothingQueued) continue;
    if (client::HostIsGone(Of(context)->handle) && Of(context)->fatal_reported.exchange(1) == 0) {
      event->event_type = IBV_EVENT_DEVICE_FATAL;
      SetElement(*event, 0);
      return 0;
    }
    return MinusOneWith(error);
  }
}

RDMAEMU_EXPORT void ibv_ack_async_event(ibv_async_event* event) {
  switch (AffiliationOf(event->event_type)) {
    case Affiliation::kCq:
      Acknowledge(*event->element.cq, event->element.cq->async_events_completed);
      break;
    case Affiliation::kQp:
      Acknowledge(*event->element.qp, event->element.qp->events_completed);
      break;
    case Affiliation::kSrq:
      Acknowledge(*event->element.srq, event->element.srq->events_completed);
      break;
    case Affiliation::kPortOrDevice:
      break;
  }
}
