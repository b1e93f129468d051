// Checks of completion channels, completion queues and shared receive queues.
#include <infiniband/verbs.h>

#include "shim/layer/checks/hook.h"
#include "shim/layer/checks/install.h"

namespace rdmaemu::layer::checks {
namespace {

struct CreateCompChannel : Check {
  static constexpr const char* kCall = "ibv_create_comp_channel";
  void After(ibv_comp_channel* channel, ibv_context*) { Made<CompChannel>(*this, kCall, channel); }
};

struct DestroyCompChannel : DestroyCheck<CompChannel> {
  static constexpr const char* kCall = "ibv_destroy_comp_channel";
  bool Before(ibv_comp_channel* channel) {
    const Section section;
    if (!section) return true;
    if (!Begin(Rule::kCQ_010, kCall, channel)) return false;
    if (object == nullptr || !is_programs || object->generation != Generation()) return true;
    const int waiting = object->waiting.Count();
    if (waiting == 0) return true;
    Report(Rule::kTHREAD_002, kCall, object, nullptr, nullptr, "threads in ibv_get_cq_event: %d",
           waiting);
    return true;
  }
  void After(int error, ibv_comp_channel* channel) {
    const Section section;
    if (!section) return;
    End(error == 0);
    if (error != EBUSY || !is_programs) return;
    const Cq* user = nullptr;
    All<Cq>().ForEachAlive([&](const Cq& cq) {
      if (cq.channel == channel) user = &cq;
    });
    if (user == nullptr) return;
    Report(Rule::kCQ_008, kCall, object, user, nullptr, "the call fails, because %s uses it",
           NameOf(*user).c_str());
  }
};

struct CreateCq : Check {
  static constexpr const char* kCall = "ibv_create_cq";
  void After(ibv_cq* cq, ibv_context*, int, void*, ibv_comp_channel* channel, int) {
    Made<Cq>(*this, kCall, cq, [&](Cq& made) {
      made.channel = channel;
      made.size = static_cast<uint32_t>(cq->cqe);
    });
  }
};

struct ResizeCq : Check {
  static constexpr const char* kCall = "ibv_resize_cq";
  void After(int error, ibv_cq* address, int) {
    const Section section;
    Cq* const cq = section && error == 0 ? All<Cq>().FindAlive(address) : nullptr;
    if (cq != nullptr) cq->size = static_cast<uint32_t>(address->cqe);
  }
};

struct DestroyCq : DestroyCheck<Cq> {
  static constexpr const char* kCall = "ibv_destroy_cq";
  bool Before(ibv_cq* cq) {
    const Section section;
    if (!section) return true;
    if (!Begin(Rule::kCQ_013, kCall, cq)) return false;
    if (object == nullptr || !is_programs || object->generation != Generation()) return true;
    if (object->taken > object->acked && pthread_equal(object->taker, pthread_self())) {
      Report(Rule::kCQ_004, kCall, object, nullptr, nullptr,
             "the thread took %llu events and %llu are acknowledged",
             static_cast<unsigned long long>(object->taken),
             static_cast<unsigned long long>(object->acked));
    }
    return true;
  }
  void After(int error, ibv_cq* cq) {
    const Section section;
    if (!section) return;
    const bool has_ended = End(error == 0);
    if (!is_programs || object == nullptr) return;
    if (has_ended && object->polls == 0 && object->signalled > 0) {
      Report(Rule::kCQ_002, kCall, object, nullptr, nullptr,
             "%llu sends asked for completions, and the CQ was never polled",
             static_cast<unsigned long long>(object->signalled));
    }
    if (error != EBUSY) return;
    const Qp* user = nullptr;
    All<Qp>().ForEachAlive([&](const Qp& qp) {
      const auto* const verbs = static_cast<const ibv_qp*>(qp.address);
      if (qp.generation == Generation() && (verbs->send_cq == cq || verbs->recv_cq == cq)) {
        user = &qp;
      }
    });
    if (user == nullptr) return;
    Report(Rule::kCQ_007, kCall, object, user, nullptr, "the call fails, because %s uses it",
           NameOf(*user).c_str());
  }
};

struct GetCqEvent : Check {
  static constexpr const char* kCall = "ibv_get_cq_event";
  bool Before(ibv_comp_channel* channel, ibv_cq**, void**) {
    const Section section;
    CompChannel* const object = section ? All<CompChannel>().FindAlive(channel) : nullptr;
    if (object == nullptr) return true;
    object->waiting.Add();
    if (!is_programs) return true;
    All<Cq>().ForEachAlive([&](Cq& cq) {
      if (cq.channel != channel || !cq.is_armed_late) return;
      cq.is_armed_late = false;
      Report(Rule::kCQ_003, kCall, &cq, object, nullptr,
             "the last calls for %s are ibv_poll_cq, ibv_req_notify_cq", NameOf(cq).c_str());
    });
    return true;
  }
  void After(int result, ibv_comp_channel* channel, ibv_cq** out, void**) {
    const Section section;
    if (!section) return;
    if (CompChannel* const object = All<CompChannel>().Find(channel)) object->waiting.Remove();
    Cq* const cq = result == 0 ? All<Cq>().FindAlive(*out) : nullptr;
    if (cq == nullptr) return;
    cq->taken++;
    cq->taker = pthread_self();
    cq->is_polled_since_event = false;
    cq->is_armed_late = false;
  }
};

struct AckCqEvents : Check {
  static constexpr const char* kCall = "ibv_ack_cq_events";
  bool Before(ibv_cq* cq, unsigned count) {
    const Section section;
    Cq* const object = section ? All<Cq>().FindAlive(cq) : nullptr;
    if (object == nullptr) return true;
    // A thread that took an event may not have returned to GetCqEvent::After yet. It then does not
    // know the event either.
    if (is_programs && object->generation == Generation() &&
        object->acked + count > object->taken) {
      Report(Rule::kCQ_005, kCall, object, nullptr, nullptr,
             "%llu events were taken, and %llu are acknowledged now",
             static_cast<unsigned long long>(object->taken),
             static_cast<unsigned long long>(object->acked + count));
    }
    object->acked += count;
    return true;
  }
};

struct CreateSrq : Check {
  static constexpr const char* kCall = "ibv_create_srq";
  void After(ibv_srq* srq, ibv_pd* pd, ibv_srq_init_attr* attr) {
    Made<Srq>(*this, kCall, srq, [&](Srq& made) {
      made.pd = pd;
      made.attr = attr->attr;
    });
  }
};

struct DestroySrq : DestroyCheck<Srq> {
  static constexpr const char* kCall = "ibv_destroy_srq";
  bool Before(ibv_srq* srq) {
    const Section section;
    return !section || Begin(Rule::kQP_034, kCall, srq);
  }
  void After(int error, ibv_srq* srq) {
    const Section section;
    if (!section) return;
    End(error == 0);
    if (error != EBUSY || !is_programs) return;
    const Qp* user = nullptr;
    All<Qp>().ForEachAlive([&](const Qp& qp) {
      if (qp.srq == srq) user = &qp;
    });
    if (user == nullptr) return;
    Report(Rule::kQP_032, kCall, object, user, nullptr, "the call fails, because %s uses it",
           NameOf(*user).c_str());
  }
};

}  // namespace

void InstallQueueCalls(SlotOfName slot_of) {
  Install<CreateCompChannel, decltype(::ibv_create_comp_channel)>(slot_of);
  Install<DestroyCompChannel, decltype(::ibv_destroy_comp_channel)>(slot_of);
  Install<CreateCq, decltype(::ibv_create_cq)>(slot_of);
  Install<ResizeCq, decltype(::ibv_resize_cq)>(slot_of);
  Install<DestroyCq, decltype(::ibv_destroy_cq)>(slot_of);
  Install<GetCqEvent, decltype(::ibv_get_cq_event)>(slot_of);
  Install<AckCqEvents, decltype(::ibv_ack_cq_events)>(slot_of);
  Install<CreateSrq, decltype(::ibv_create_srq)>(slot_of);
  Install<DestroySrq, decltype(::ibv_destroy_srq)>(slot_of);
}

}  // namespace rdmaemu::layer::checks
