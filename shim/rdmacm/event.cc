// Events (rdma_get_cm_event(3), rdma_ack_cm_event(3)) and librdmacm's handshake steps when an event
// is fetched. An address event fills the id, a request creates an id, and a reply moves the QP to
// RTS and sends the RTU. Programs, and their bugs, depend on when these steps happen.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "emulator/abi/changed_event.h"
#include "emulator/base/nothing_queued.h"
#include "shim/client/cancellation.h"
#include "shim/rdmacm/announcement.h"
#include "shim/rdmacm/internal.h"
#include "shim/rdmacm/newer_abi.h"

namespace rdmaemu::rdmacm {
namespace {

using Response = rdma_ucm_event_resp;

const void* TakePrivateData(Event& event, const uint8_t* data, uint8_t length) {
  if (length == 0) return nullptr;
  std::memcpy(event.private_data, data, length);
  return event.private_data;
}

void TakeConnection(Event& event, const rdma_ucm_conn_param& from) {
  rdma_conn_param& to = event.param.conn;
  to.private_data = TakePrivateData(event, from.private_data, from.private_data_len);
  to.private_data_len = from.private_data_len;
  to.responder_resources = from.responder_resources;
  to.initiator_depth = from.initiator_depth;
  to.flow_control = from.flow_control;
  to.retry_count = from.retry_count;
  to.rnr_retry_count = from.rnr_retry_count;
  to.srq = from.srq;
  to.qp_num = from.qp_num;
}

void TakeDatagram(Event& event, const rdma_ucm_ud_param& from) {
  rdma_ud_param& to = event.param.ud;
  to.private_data = TakePrivateData(event, from.private_data, from.private_data_len);
  to.private_data_len = from.private_data_len;
  to.qp_num = from.qp_num;
  to.qkey = from.qkey;
  const ib_uverbs_ah_attr& ah = from.ah_attr;
  std::memcpy(to.ah_attr.grh.dgid.raw, ah.grh.dgid, sizeof(ah.grh.dgid));
  to.ah_attr.grh.flow_label = ah.grh.flow_label;
  to.ah_attr.grh.sgid_index = ah.grh.sgid_index;
  to.ah_attr.grh.hop_limit = ah.grh.hop_limit;
  to.ah_attr.grh.traffic_class = ah.grh.traffic_class;
  to.ah_attr.dlid = ah.dlid;
  to.ah_attr.sl = ah.sl;
  to.ah_attr.src_path_bits = ah.src_path_bits;
  to.ah_attr.static_rate = ah.static_rate;
  to.ah_attr.is_global = ah.is_global;
  to.ah_attr.port_num = ah.port_num;
}

void TakeParameters(Event& event, const Response& response) {
  if (IsDatagram(*event.owner)) {
    TakeDatagram(event, response.param.ud);
  } else {
    TakeConnection(event, response.param.conn);
  }
}

void CountAcknowledgement(Id& id, Multicast* multicast) {
  MutexLock lock(id.mutex);
  ++id.events_completed;
  if (multicast != nullptr) ++multicast->events_completed;
  id.acknowledged.NotifyAll();
}

// A failed step turns the event into the error event of its kind. The status is -1 for every error,
// as in librdmacm (measured). It is -EIO if the host has ended, as the error of calls is EIO then.
void FailStep(Event& event, int error, rdma_cm_event_type as) {
  if (error == 0) return;
  event.event = as;
  event.status = error == EIO && rdmaemu_client_host_is_gone() != 0 ? -EIO : -1;
}

// librdmacm queries GIDs and paths for InfiniBand and RoCE devices only. An id of an RNIC has the
// GIDs of its binding, and its route cannot fail here.
bool IsRnics(const Id& id) {
  return id.verbs != nullptr && id.verbs->device->transport_type == IBV_TRANSPORT_IWARP;
}

int OnAddressResolved(Id& id) {
  if (const int error = QueryAddresses(id); error != 0) return error;
  if (id.verbs == nullptr) return ENODEV;
  return IsRnics(id) ? 0 : QueryGids(id);
}

int OnRouteResolved(Id& id) { return IsRnics(id) ? 0 : QueryPaths(id); }

// Creates the id of a request. The id's first events may arrive before the accept, when the host
// does not have the id's address yet. For these events the table of handles finds the id.
int OnConnectRequest(Event& event, const Response& response) {
  Id& listener = *event.owner;
  Id* id = NewId(listener.channel, listener.context, listener.ps, listener.qp_type);
  uint32_t unused = 0;
  if (id == nullptr) {
    const int error = errno;
    Uninterrupted([&] { return DestroyOnHost(ChannelOf(listener), response.id, &unused); });
    return error;
  }
  id->handle = response.id;
  if (!IsDatagram(*id)) {
    id->initiator_depth = event.param.conn.initiator_depth;
    id->responder_resources = event.param.conn.responder_resources;
  }
  id->remote_ece.vendor_id = response.ece.vendor_id;
  id->remote_ece.options = response.ece.attr_mod;
  RegisterId(id);
  int error = 0;
  if (listener.synchronous) {
    error = Uninterrupted([&] { return rdma_migrate_id(id, nullptr) == 0 ? 0 : errno; });
  }
  if (error == 0) error = Uninterrupted([&] { return QueryAddressesAndGids(*id); });
  if (error == 0 && !IsDatagram(*id)) error = Uninterrupted([&] { return QueryPaths(*id); });
  if (error != 0) {
    DestroyIdSurely(*id);
    return error;
  }
  event.listen_id = &listener;
  event.id = id;
  return 0;
}

// Makes the active side's last steps: RTR, RTS, RTU. On failure sends a REJ to the peer.
int OnConnectResponse(Id& id) {
  rdma_ucm_accept command = {};
  command.uid = reinterpret_cast<uintptr_t>(&id);
  command.id = id.handle;
  Announcement announcement(Announcement::First::kInitQpAttr);
  announcement.AddMovesToReady(id, RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH);
  announcement.AddCommand(id, RDMA_USER_CM_CMD_ACCEPT, command);
  announcement.Begin();
  int error = ModifyQpToReadyToReceive(id, RDMA_MAX_RESP_RES);
  if (error == 0) error = ModifyQpToReadyToSend(id, RDMA_MAX_INIT_DEPTH);
  if (error != 0) {
    ModifyQpToError(id);
    rdma_ucm_reject reject = {};
    reject.id = id.handle;
    Uninterrupted([&] { return Call(ChannelOf(id), RDMA_USER_CM_CMD_REJECT, reject); });
    return error;
  }
  error = Uninterrupted([&] { return Call(ChannelOf(id), RDMA_USER_CM_CMD_ACCEPT, command); });
  if (error != 0) ModifyQpToError(id);
  return error;
}

// Translates an event of rdma_write_cm_event or of a lookup's thread. The latter reports the result
// of the lookup.
void TakeWritten(Event& event, const Response& response) {
  uint64_t argument = 0;
  std::memcpy(&argument, &response.param, sizeof(argument));
  if (response.event == kEventInternal) {
    event.event = EventType(event.status == 0 ? kEventAddrinfoResolved : kEventAddrinfoError);
  }
  SetArgument(event, argument);
}

bool IsMulticast(uint32_t event) {
  return event == RDMA_CM_EVENT_MULTICAST_JOIN || event == RDMA_CM_EVENT_MULTICAST_ERROR;
}

// Returns false for an event that a fault rule turned into an event of another kind. Such an event
// lacks the object that the steps of its new type need: a membership, or a new id.
bool HasItsSteps(uint32_t natural, uint32_t event) {
  return natural == event ||
         (IsMulticast(natural) == IsMulticast(event) && event != RDMA_CM_EVENT_CONNECT_REQUEST &&
          natural != RDMA_CM_EVENT_CONNECT_REQUEST);
}

// Translates the host's event for the caller. Returns false if the caller must not see it, because
// the id was already reported as failed or was destroyed.
bool Translate(const Response& response, Event& event) {
  const uint32_t natural = NaturalEventType(response);
  event.event = static_cast<rdma_cm_event_type>(response.event);
  event.status = static_cast<int>(response.status);
  if (IsMulticast(natural)) {
    event.multicast = reinterpret_cast<Multicast*>(response.uid);
    event.owner = event.multicast->id;
  } else {
    event.owner = response.uid != 0 ? reinterpret_cast<Id*>(response.uid) : FindId(response.id);
  }
  if (event.owner == nullptr) return false;
  Id& id = *event.owner;
  event.id = &id;
  const bool over = id.connect_failed && (event.event == RDMA_CM_EVENT_REJECTED ||
                                          event.event == RDMA_CM_EVENT_DISCONNECTED);
  if (over) {
    CountAcknowledgement(id, nullptr);
    return false;
  }
  if (response.event == kEventUser || response.event == kEventInternal) {
    TakeWritten(event, response);
    return true;
  }
  TakeParameters(event, response);
  if (!HasItsSteps(natural, response.event)) return true;
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      FailStep(event, Uninterrupted([&] { return OnAddressResolved(id); }),
               RDMA_CM_EVENT_ADDR_ERROR);
      break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      FailStep(event, Uninterrupted([&] { return OnRouteResolved(id); }),
               RDMA_CM_EVENT_ROUTE_ERROR);
      break;
    case RDMA_CM_EVENT_CONNECT_REQUEST:
      if (OnConnectRequest(event, response) != 0) {
        CountAcknowledgement(id, nullptr);
        return false;
      }
      break;
    case RDMA_CM_EVENT_CONNECT_RESPONSE: {
      if (id.qp == nullptr) {
        id.remote_ece.vendor_id = response.ece.vendor_id;
        id.remote_ece.options = response.ece.attr_mod;
        break;
      }
      const int error = OnConnectResponse(id);
      id.connect_failed = error != 0;
      event.event = RDMA_CM_EVENT_ESTABLISHED;
      FailStep(event, error, RDMA_CM_EVENT_CONNECT_ERROR);
      break;
    }
    case RDMA_CM_EVENT_REJECTED:
      ModifyQpToError(id);
      break;
    case RDMA_CM_EVENT_MULTICAST_JOIN:
      if (event.status == 0) {
        FailStep(event, AttachAtJoin(*event.multicast, event.param.ud),
                 RDMA_CM_EVENT_MULTICAST_ERROR);
      }
      event.param.ud.private_data = event.multicast->context;
      break;
    case RDMA_CM_EVENT_MULTICAST_ERROR:
      event.param.ud.private_data = event.multicast->context;
      break;
    default:
      break;
  }
  return true;
}

// Works as rdma_get_cm_event(3). `is_step` is true when the calling function has already changed
// something (Uninterrupted).
int NextEvent(rdma_event_channel* channel, rdma_cm_event** event, bool is_step) {
  if (channel == nullptr || event == nullptr) return Fail(EINVAL);
  Channel& ours = Private(channel);
  if (IsForked(ours)) return Fail(EACCES);
  for (int repeats = 0;;) {
    // This call is a cancellation point. The thread holds no lock and no memory here.
    if (const int error = rdmaemu_client_wait(ours.fd); error != 0) return Fail(error);
    const client::CancellationHeld held;
    rdma_ucm_get_event command = {};
    Response response = {};
    Announcement announcement(Announcement::First::kGetEvent);
    // A request of a synchronous listener moves to another channel before the queries.
    if (!ours.is_of_id) {
      announcement.AddQueries(ours);
      announcement.Begin();
    }
    const int error = Call(ours, RDMA_USER_CM_CMD_GET_EVENT, command, &response);
    // The event moved to another channel with its id, or its id was destroyed.
    if (error == kNothingQueued) continue;
    if (error != 0) {
      rdmaemu_client_put_back(ours.fd);  // the event is still queued
      if (is_step && error == EINTR && repeats++ < client::kMaxRepeats) continue;
      return Fail(error);
    }
    Owned<Event> taken(Make<Event>());
    if (taken.get() == nullptr) return Fail(ENOMEM);
    if (!Translate(response, *taken)) continue;
    *event = taken.Release();
    return 0;
  }
}

}  // namespace

int Complete(Id& id) {
  if (!id.synchronous) return 0;
  if (id.event != nullptr) {
    rdma_ack_cm_event(id.event);
    id.event = nullptr;
  }
  if (NextEvent(id.channel, &id.event, /*is_step=*/true) != 0) return -1;
  const int status = id.event->status;
  if (status == 0) return 0;
  if (id.event->event == RDMA_CM_EVENT_REJECTED) return Fail(ECONNREFUSED);
  // A positive status is the status of a SIDR_REP, which librdmacm, too, returns as errno.
  return Fail(std::abs(status));
}

}  // namespace rdmaemu::rdmacm

extern "C" {

int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  return rdmaemu::rdmacm::NextEvent(channel, event, /*is_step=*/false);
}

int rdma_ack_cm_event(rdma_cm_event* event) {
  using namespace rdmaemu::rdmacm;
  if (event == nullptr) return Fail(EINVAL);
  const Owned<Event> ours(static_cast<Event*>(event));
  CountAcknowledgement(*ours->owner, ours->multicast);
  return 0;
}

}  // extern "C"
