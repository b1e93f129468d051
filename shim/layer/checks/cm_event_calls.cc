// Checks of event channels and of the events of RDMA CM.
#include <rdma/rdma_cma.h>

#include "shim/layer/checks/hook.h"
#include "shim/layer/checks/install.h"

namespace rdmaemu::layer::checks {
namespace {

bool g_has_acknowledging_threads;

struct CreateEventChannel : Check {
  static constexpr const char* kCall = "rdma_create_event_channel";
  void After(rdma_event_channel* channel) { Made<EventChannel>(*this, kCall, channel); }
};

struct DestroyEventChannel : DestroyCheck<EventChannel> {
  static constexpr const char* kCall = "rdma_destroy_event_channel";
  bool Before(rdma_event_channel* channel) {
    const Section section;
    if (!section) return true;
    if (!Begin(Rule::kCM_029, kCall, channel)) return false;
    if (object == nullptr || !is_programs) return true;
    const int waiting = object->generation == Generation() ? object->waiting.Count() : 0;
    if (waiting > 0) {
      Report(Rule::kTHREAD_001, kCall, object, nullptr, nullptr, "threads in rdma_get_cm_event: %d",
             waiting);
    }
    const Id* of_id = nullptr;
    const Event* of_event = nullptr;
    int ids = 0, events = 0;
    All<Id>().ForEachAlive([&](const Id& id) {
      if (id.channel != channel || id.generation != Generation()) return;
      of_id = &id;
      ids++;
    });
    All<Event>().ForEachAlive([&](const Event& event) {
      if (event.channel != channel || event.generation != Generation()) return;
      of_event = &event;
      events++;
    });
    if (ids > 0)
      Report(Rule::kCM_020, kCall, object, of_id, nullptr, "ids of the channel: %d", ids);
    if (events > 0) {
      Report(Rule::kCM_021, kCall, object, of_event, nullptr,
             "events that are not acknowledged: %d", events);
    }
    return true;
  }
  void After(rdma_event_channel*) {
    const Section section;
    if (section) End(true);
  }
};

// Records the facts about ids that an event reveals.
void Learn(const rdma_cm_event& event) {
  Id* const id = All<Id>().FindAlive(event.id);
  if (id == nullptr) return;
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      id->has_address = true;
      break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      id->has_route = true;
      break;
    case RDMA_CM_EVENT_REJECTED:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_CONNECT_ERROR:
      id->failed = event.event;
      break;
    default:
      break;
  }
  if (event.event == RDMA_CM_EVENT_DISCONNECTED || id->failed >= 0) {
    if (Qp* const qp = All<Qp>().FindAlive(event.id->qp)) StopTracking(*qp);
  }
}

struct GetCmEvent : Check {
  static constexpr const char* kCall = "rdma_get_cm_event";
  EventChannel* channel_object = nullptr;
  bool is_foreign = false;

  bool Before(rdma_event_channel* channel, rdma_cm_event**) {
    const Section section;
    channel_object = section ? All<EventChannel>().Find(channel) : nullptr;
    if (channel_object == nullptr) return true;
    is_foreign = channel_object->generation != Generation();
    if (channel_object->life == Life::kEnded && is_programs) {
      Report(Rule::kCM_029, kCall, channel_object, nullptr, nullptr, "%s is destroyed",
             NameOf(*channel_object).c_str());
      channel_object = nullptr;
      return false;
    }
    channel_object->waiting.Add();
    return true;
  }
  void After(int result, rdma_event_channel* channel, rdma_cm_event** out) {
    const int error = errno;
    {
      const Section section;
      if (section && channel_object != nullptr) {
        channel_object->waiting.Remove();
        if (result != 0 && error == EACCES && is_foreign && is_programs) {
          Report(Rule::kTHREAD_005, kCall, channel_object, nullptr, nullptr,
                 "the call fails with EACCES in a forked child");
        }
      }
    }
    if (result != 0) return;
    const rdma_cm_event& event = **out;
    const bool is_request = event.event == RDMA_CM_EVENT_CONNECT_REQUEST;
    if (is_request) {
      Made<Id>(*this, kCall, event.id, [&](Id& id) {
        id.is_request = id.has_address = true;
        id.channel = channel;
        id.initiator_depth = event.param.conn.initiator_depth;
      });
    }
    Made<Event>(*this, kCall, &event, [&](Event& made) {
      made.type = event.event;
      made.owner = is_request ? event.listen_id : event.id;
      made.channel = channel;
      made.taker = pthread_self();
      Learn(event);
    });
  }
};

struct AckCmEvent : Check {
  static constexpr const char* kCall = "rdma_ack_cm_event";
  bool Before(rdma_cm_event* event) {
    const Section section;
    Event* const object = section ? All<Event>().Find(event) : nullptr;
    if (object == nullptr) return true;
    if (object->life == Life::kEnded && is_programs) {
      Report(Rule::kCM_003, kCall, object, nullptr, nullptr, "%s is acknowledged already",
             NameOf(*object).c_str());
      return false;
    }
    if (!pthread_equal(object->taker, pthread_self())) g_has_acknowledging_threads = true;
    // Mark the event before the call. Its memory may belong to the next event before the call
    // returns.
    object->life = Life::kEnded;
    return true;
  }
};

}  // namespace

bool HasAcknowledgingThreads() { return g_has_acknowledging_threads; }

void InstallEventCalls(SlotOfName slot_of) {
  Install<CreateEventChannel, decltype(::rdma_create_event_channel)>(slot_of);
  Install<DestroyEventChannel, decltype(::rdma_destroy_event_channel)>(slot_of);
  Install<GetCmEvent, decltype(::rdma_get_cm_event)>(slot_of);
  Install<AckCmEvent, decltype(::rdma_ack_cm_event)>(slot_of);
}

}  // namespace rdmaemu::layer::checks
