#include "shim/layer/faults/event_doors.h"

#include "shim/layer/caller.h"
#include "shim/layer/faults/ask.h"
#include "shim/layer/faults/objects.h"
#include "shim/layer/module.h"

namespace rdmaemu::layer::faults {
namespace {

decltype(::ibv_get_async_event)* g_next_async;
decltype(::ibv_ack_async_event)* g_next_ack_async;
decltype(::rdma_get_cm_event)* g_next_event;
decltype(::rdma_ack_cm_event)* g_next_ack;
decltype(::rdma_connect)* g_next_connect;
decltype(::rdma_accept)* g_next_accept;
decltype(::rdma_disconnect)* g_next_disconnect;
decltype(::rdma_destroy_id)* g_next_destroy_id;
decltype(::rdma_destroy_ep)* g_next_destroy_ep;

// ---- asynchronous events

const ibv_qp* QpOf(const ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return event.element.qp;
    default:
      return nullptr;
  }
}

int GetAsyncEvent(ibv_context* context, ibv_async_event* event) {
  const Caller caller(__builtin_return_address(0));
  for (;;) {
    const int result = g_next_async(context, event);
    if (result != 0 || !caller.IsProgram() || !IsWatched(&DoorsPage::async_events)) return result;
    MomentIn moment{};
    moment.door = static_cast<uint32_t>(Door::kAsyncEvent);
    moment.number = event->event_type;
    SetDevice(moment, context->device);
    if (const ibv_qp* const qp = QpOf(*event)) SetQp(moment, qp);
    Asked asked(moment);
    asked.Mark(asked.does() == Does::kDrop ? Injected::kCall : Injected::kLine);
    if (asked.does() == Does::kWaitBefore) asked.Await();
    if (asked.does() == Does::kChange) {
      event->event_type = static_cast<ibv_event_type>(asked.answer().type);
    }
    if (asked.does() != Does::kDrop) return 0;
    g_next_ack_async(event);
  }
}

// ---- RDMA CM events

// Returns whether the program can no longer get this event, because a rule ended the connection.
bool IsSwallowed(const rdma_cm_event& event) {
  if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) return false;
  const IdState* const state = IdStates::Find(event.id);
  return state != nullptr && state->is_ended &&
         (event.event == RDMA_CM_EVENT_DISCONNECTED || event.event == RDMA_CM_EVENT_TIMEWAIT_EXIT);
}

// Returns the event's number in rules. The kernel's event for the active side is CONNECT_RESPONSE.
// librdmacm converts it to ESTABLISHED, except for UDP and iWARP.
uint32_t NumberOf(const rdma_cm_event& event) {
  if (event.event != RDMA_CM_EVENT_ESTABLISHED || event.id->ps == RDMA_PS_UDP) return event.event;
  const ibv_context* const verbs = event.id->verbs;
  if (verbs != nullptr && verbs->device->transport_type == IBV_TRANSPORT_IWARP) return event.event;
  const IdState* const state = IdStates::Find(event.id);
  return state != nullptr && state->is_active ? RDMA_CM_EVENT_CONNECT_RESPONSE
                                              : RDMA_CM_EVENT_ESTABLISHED;
}

// Ends a connection whose event a rule has dropped.
void EndConnection(rdma_cm_id* id) {
  IdState* const state = IdStates::FindOrMake(id);
  if (state != nullptr) state->is_ended = true;
  g_next_disconnect(id);
}

// The private data of a rule, in an event. Stored by the event's address, because librdmacm frees
// the event when the program acknowledges it.
struct EventData {
  uint8_t bytes[sizeof AnswerOut::private_data];
};

void SetPrivateData(rdma_cm_event& event, const AnswerOut& answer) {
  EventData* const data = Originals<EventData, EventData>::FindOrMake(&event);
  if (data == nullptr) return;
  memcpy(data->bytes, answer.private_data, answer.private_data_bytes);
  event.param.conn.private_data = data->bytes;
  event.param.conn.private_data_len = static_cast<uint8_t>(answer.private_data_bytes);
}

// Changes an event's type. A rule that changes CONNECT_RESPONSE to CONNECT_RESPONSE does not change
// the ESTABLISHED that librdmacm has made of it.
void ChangeType(rdma_cm_event& event, uint32_t type) {
  if (type == NumberOf(event)) return;
  event.event = static_cast<rdma_cm_event_type>(type);
  if (type != RDMA_CM_EVENT_DEVICE_REMOVAL) return;
  if (IdState* const state = IdStates::FindOrMake(event.id)) state->is_removed = true;
}

void Change(rdma_cm_event& event, const AnswerOut& answer) {
  const bool is_up = event.event == RDMA_CM_EVENT_ESTABLISHED;
  if (answer.flags & kHasValue) event.status = answer.value;
  if (answer.flags & kHasType) ChangeType(event, answer.type);
  if (answer.private_data_bytes != 0) SetPrivateData(event, answer);
  const bool has_failed =
      event.event == RDMA_CM_EVENT_REJECTED || event.event == RDMA_CM_EVENT_UNREACHABLE ||
      event.event == RDMA_CM_EVENT_CONNECT_ERROR || event.event == RDMA_CM_EVENT_DEVICE_REMOVAL;
  if (is_up && has_failed) EndConnection(event.id);
}

// Acknowledges an event that the program does not get. Also destroys the id of a connection
// request, because nobody else does.
void Lose(rdma_cm_event* event) {
  rdma_cm_id* const request = event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? event->id : nullptr;
  g_next_ack(event);
  if (request != nullptr) g_next_destroy_id(request);
}

int GetCmEvent(rdma_event_channel* channel, rdma_cm_event** event) {
  const Caller caller(__builtin_return_address(0));
  for (;;) {
    const int result = g_next_event(channel, event);
    if (result != 0 || !caller.IsProgram()) return result;
    if (IsSwallowed(**event)) {
      g_next_ack(*event);
      continue;
    }
    if (!IsWatched(&DoorsPage::cm_events)) return 0;
    MomentIn moment{};
    moment.door = static_cast<uint32_t>(Door::kCmEvent);
    moment.number = NumberOf(**event);
    Asked asked(moment);
    const bool is_lost = asked.does() == Does::kDrop;
    asked.Mark(is_lost ? Injected::kCall : Injected::kLine);
    if (asked.does() == Does::kWaitBefore) asked.Await();
    if (asked.does() == Does::kChange) Change(**event, asked.answer());
    if (!is_lost) return 0;
    Lose(*event);
  }
}

void SetActive(rdma_cm_id* id, bool is_active) {
  IdState* const state = IdStates::FindOrMake(id);
  if (state == nullptr) return;
  state->is_active = is_active;
  state->is_ended = false;
}

int Connect(rdma_cm_id* id, rdma_conn_param* param) {
  const Caller caller(__builtin_return_address(0));
  SetActive(id, true);
  return g_next_connect(id, param);
}

int Accept(rdma_cm_id* id, rdma_conn_param* param) {
  const Caller caller(__builtin_return_address(0));
  SetActive(id, false);
  return g_next_accept(id, param);
}

// Forget a destroyed id, because another id may get its address.
void Forget(rdma_cm_id* id) {
  if (IdState* const state = IdStates::Find(id)) state->is_removed = false;
}

int DestroyId(rdma_cm_id* id) {
  const Caller caller(__builtin_return_address(0));
  Forget(id);
  return g_next_destroy_id(id);
}

void DestroyEp(rdma_cm_id* id) {
  const Caller caller(__builtin_return_address(0));
  Forget(id);
  g_next_destroy_ep(id);
}

}  // namespace

void InstallAsyncEventDoor(SlotOfName slot_of) {
  if (void** const slot = slot_of("ibv_ack_async_event")) {
    g_next_ack_async = reinterpret_cast<decltype(g_next_ack_async)>(*slot);
  }
  InterceptBy(slot_of, "ibv_get_async_event", GetAsyncEvent, &g_next_async);
}

void InstallCmEventDoor(SlotOfName slot_of) {
  const auto find = [&](const char* name, auto& function) {
    if (void** const slot = slot_of(name)) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(*slot);
    }
  };
  find("rdma_ack_cm_event", g_next_ack);
  find("rdma_disconnect", g_next_disconnect);
  InterceptBy(slot_of, "rdma_get_cm_event", GetCmEvent, &g_next_event);
  InterceptBy(slot_of, "rdma_connect", Connect, &g_next_connect);
  InterceptBy(slot_of, "rdma_accept", Accept, &g_next_accept);
  InterceptBy(slot_of, "rdma_destroy_id", DestroyId, &g_next_destroy_id);
  InterceptBy(slot_of, "rdma_destroy_ep", DestroyEp, &g_next_destroy_ep);
}

}  // namespace rdmaemu::layer::faults
