// Checks of the calls with an rdma_cm_id.
#include <fcntl.h>
#include <rdma/rdma_cma.h>

#include "emulator/base/cm_event_names.h"
#include "shim/layer/checks/hook.h"
#include "shim/layer/checks/install.h"
#include "shim/layer/checks/qp.h"

namespace rdmaemu::layer::checks {
namespace {

// The most bytes of private data, without the header of RDMA CM in the private data of IB CM
// messages.
constexpr uint8_t kConnectBytes = 56, kAcceptBytes = 196, kRejectBytes = 148;
constexpr uint8_t kUdConnectBytes = 180, kUdAnswerBytes = 136;

struct IdCheck : Check {
  const Id* id = nullptr;
  uint32_t serial = 0;
  bool is_foreign = false;  // a forked child uses the id of its parent

  // Returns false when the id was destroyed, after a report.
  bool Use(const char* call, const rdma_cm_id* address) {
    id = All<Id>().Find(address);
    if (id == nullptr) return true;
    serial = id->serial;
    is_foreign = id->generation != Generation();
    if (id->life == Life::kEnded && is_programs) {
      Report(Rule::kCM_027, call, id, nullptr, nullptr, "%s is destroyed", NameOf(*id).c_str());
      return false;
    }
    return true;
  }
  // Returns the id after the call, when it still exists.
  Id* Used(const rdma_cm_id* address) const {
    Id* const found = All<Id>().FindAlive(address);
    return found != nullptr && found->serial == serial ? found : nullptr;
  }
  // Reports a call that failed because the process is forked, or because the call cannot wait.
  void CheckFailure(const char* call, int result, int error, const rdma_cm_id* address) const {
    if (result == 0 || !is_programs) return;
    if (error == EACCES && is_foreign) {
      Report(Rule::kTHREAD_005, call, Used(address), nullptr, nullptr,
             "the call fails with EACCES in a forked child");
    }
    const Id* const used = error == EAGAIN ? Used(address) : nullptr;
    if (used == nullptr || used->channel != nullptr || address->channel == nullptr) return;
    if ((fcntl(address->channel->fd, F_GETFL) & O_NONBLOCK) == 0) return;
    Report(Rule::kCM_030, call, used, nullptr, nullptr, "the call fails with EAGAIN");
  }
  bool Failed(int result, int error) const {
    return is_programs && id != nullptr && result != 0 && error == EINVAL;
  }
};

bool IsOnInfiniBand(const rdma_cm_id* id) {
  return id->verbs != nullptr && id->verbs->device->transport_type == IBV_TRANSPORT_IB;
}

// Reports private data that is too long for an id with an IP address. Ids of AF_IB have no header
// of RDMA CM.
void CheckPrivateData(const IdCheck& check, const char* call, const rdma_cm_id* id, uint8_t length,
                      uint8_t limit, uint8_t ud_limit) {
  if (!check.is_programs || check.id == nullptr || !IsOnInfiniBand(id)) return;
  const int family = id->route.addr.src_addr.sa_family;
  if (family != AF_INET && family != AF_INET6) return;
  const uint8_t most = id->qp_type == IBV_QPT_UD || id->ps == RDMA_PS_UDP ? ud_limit : limit;
  if (length <= most) return;
  Report(Rule::kCM_007, call, check.id, nullptr, nullptr, "private_data_len is %u, at most %u fit",
         length, most);
}

void CheckRetries(const IdCheck& check, const char* call, const rdma_cm_id* id,
                  const rdma_conn_param* param) {
  if (!check.is_programs || check.id == nullptr || param == nullptr || !IsOnInfiniBand(id) ||
      id->qp_type != IBV_QPT_RC) {
    return;
  }
  if (!check.id->is_request && param->retry_count == 0) {
    Report(Rule::kCM_023, call, check.id, nullptr, nullptr, "retry_count is 0");
  }
  if (param->rnr_retry_count == 0) {
    Report(Rule::kCM_024, call, check.id, nullptr, nullptr, "rnr_retry_count is 0");
  }
}

void CheckQpNumber(const IdCheck& check, const char* call, const rdma_cm_id* id,
                   const rdma_conn_param* param) {
  if (!check.is_programs || check.id == nullptr || id->qp != nullptr || id->qp_type == IBV_QPT_UD ||
      id->ps == RDMA_PS_UDP || id->ps == RDMA_PS_IPOIB) {
    return;
  }
  if (param != nullptr && param->qp_num != 0) return;
  Report(Rule::kCM_025, call, check.id, nullptr, nullptr, "id->qp is NULL and qp_num is 0");
}

const char* EventName(int type) { return CmEventName(static_cast<uint32_t>(type)); }

// Reports a call that failed because the id's connection attempt had failed before. Returns whether
// that was the reason.
bool CheckFailedId(const IdCheck& check, const char* call, int result, int error) {
  if (!check.Failed(result, error) || check.id->failed < 0) return false;
  Report(Rule::kCM_008, call, check.id, nullptr, nullptr, "the id got %s before",
         EventName(check.id->failed));
  return true;
}

// Forgets the channel of a synchronous id. librdmacm creates the channel, and the program can see
// it in the id.
void ForgetOwnChannel(const rdma_cm_id* id) {
  const Section section;
  if (section) All<EventChannel>().Forget(id->channel);
}

struct CreateId : Check {
  static constexpr const char* kCall = "rdma_create_id";
  bool Before(rdma_event_channel* channel, rdma_cm_id**, void*, rdma_port_space) {
    const Section section;
    if (!section || channel == nullptr || !is_programs) return true;
    const EventChannel* const known = All<EventChannel>().Find(channel);
    if (known == nullptr || known->life != Life::kEnded) return true;
    Report(Rule::kCM_029, kCall, known, nullptr, nullptr, "%s is destroyed",
           NameOf(*known).c_str());
    return false;
  }
  void After(int result, rdma_event_channel* channel, rdma_cm_id** out, void*, rdma_port_space) {
    if (result != 0) return;
    if (channel == nullptr) ForgetOwnChannel(*out);
    Made<Id>(*this, kCall, *out, [&](Id& id) { id.channel = channel; });
  }
};

struct CreateEp : Check {
  static constexpr const char* kCall = "rdma_create_ep";
  void After(int result, rdma_cm_id** out, rdma_addrinfo* info, ibv_pd*, ibv_qp_init_attr*) {
    if (result != 0) return;
    ForgetOwnChannel(*out);
    Made<Id>(*this, kCall, *out, [&](Id& id) {
      id.has_address = true;
      id.has_route = (info->ai_flags & RAI_PASSIVE) == 0;
    });
  }
};

// Reports events of the id that this thread has taken and not acknowledged. If another thread
// acknowledges events, that thread may still acknowledge these.
void CheckEvents(const char* call, Rule rule, Rule listener_rule, const Id& id) {
  if (HasAcknowledgingThreads()) return;
  All<Event>().ForEachAlive([&](const Event& event) {
    if (event.owner != id.address || !pthread_equal(event.taker, pthread_self())) return;
    const bool is_request = event.type == RDMA_CM_EVENT_CONNECT_REQUEST;
    Report(is_request ? listener_rule : rule, call, &id, &event, nullptr,
           "the thread took %s of %s and did not acknowledge it", EventName(event.type),
           NameOf(id).c_str());
  });
}

template <const char* kName, bool kIsEp>
struct DestroysId : DestroyCheck<Id> {
  static constexpr const char* kCall = kName;
  static constexpr bool kReturns = !kIsEp;
  bool Before(rdma_cm_id* id) {
    const Section section;
    if (!section) return true;
    if (!Begin(Rule::kCM_027, kCall, id)) return false;
    if (object == nullptr || !is_programs) return true;
    CheckEvents(kCall, Rule::kCM_001, Rule::kCM_002, *object);
    const Qp* const qp = kIsEp ? nullptr : All<Qp>().FindAlive(id->qp);
    if (qp != nullptr && !qp->is_programs) {
      Report(Rule::kCM_005, kCall, object, qp, nullptr, "id->qp is %s", NameOf(*qp).c_str());
    }
    return true;
  }
  void After(int result, rdma_cm_id*) {
    const Section section;
    if (section) End(result == 0);
  }
  void After(rdma_cm_id*) {
    const Section section;
    if (section) End(true);
  }
};
constexpr char kDestroyId[] = "rdma_destroy_id", kDestroyEp[] = "rdma_destroy_ep";

struct MigrateId : IdCheck {
  static constexpr const char* kCall = "rdma_migrate_id";
  bool Before(rdma_cm_id* address, rdma_event_channel*) {
    const Section section;
    if (!section) return true;
    if (!Use(kCall, address)) return false;
    if (is_programs && id != nullptr) CheckEvents(kCall, Rule::kCM_010, Rule::kCM_010, *id);
    return true;
  }
  void After(int result, rdma_cm_id* address, rdma_event_channel* channel) {
    if (result != 0) return;
    if (channel == nullptr) ForgetOwnChannel(address);
    const Section section;
    Id* const used = section ? Used(address) : nullptr;
    if (used != nullptr) used->channel = channel;
  }
};

// Checks of calls that only require an id that was not destroyed.
#define RDMAEMU_CHECK_USES_ID(name, function)                   \
  template <class... A>                                         \
  struct name##Uses : IdCheck {                                 \
    static constexpr const char* kCall = #function;             \
    bool Before(rdma_cm_id* address, A...) {                    \
      const Section section;                                    \
      return !section || Use(kCall, address);                   \
    }                                                           \
    void After(int result, rdma_cm_id* address, A...) {         \
      const int error = errno;                                  \
      const Section section;                                    \
      if (section) CheckFailure(kCall, result, error, address); \
    }                                                           \
  };
RDMAEMU_CHECK_USES_ID(BindAddr, rdma_bind_addr)
RDMAEMU_CHECK_USES_ID(SetOption, rdma_set_option)
RDMAEMU_CHECK_USES_ID(Notify, rdma_notify)
RDMAEMU_CHECK_USES_ID(Establish, rdma_establish)
RDMAEMU_CHECK_USES_ID(JoinMulticast, rdma_join_multicast)
RDMAEMU_CHECK_USES_ID(LeaveMulticast, rdma_leave_multicast)
#undef RDMAEMU_CHECK_USES_ID

struct ResolveAddr : BindAddrUses<sockaddr*, sockaddr*, int> {
  static constexpr const char* kCall = "rdma_resolve_addr";
  void After(int result, rdma_cm_id* address, sockaddr*, sockaddr*, int) {
    const int error = errno;
    const Section section;
    if (!section) return;
    CheckFailure(kCall, result, error, address);
    CheckFailedId(*this, kCall, result, error);
    Id* const used = Used(address);
    if (result == 0 && used != nullptr && used->channel == nullptr) used->has_address = true;
  }
};

// The check of a call that the program may make only after an event.
struct StepCheck : IdCheck {
  Rule rule;
  const char* event;
  bool is_reported = false;

  StepCheck(Rule broken, const char* wanted) : rule(broken), event(wanted) {}

  // Reports before the call, because librdmacm uses id->verbs without a test.
  void CheckDevice(const char* call, const rdma_cm_id* address) {
    is_reported = is_programs && id != nullptr && address->verbs == nullptr;
    if (!is_reported) return;
    Report(rule, call, id, nullptr, nullptr, "the program took no %s of %s, and id->verbs is NULL",
           event, NameOf(*id).c_str());
  }
  // `has_taken`: the program has taken the event.
  void CheckResult(const char* call, int result, int error, bool has_taken) const {
    if (is_reported || CheckFailedId(*this, call, result, error)) return;
    if (!Failed(result, error) || has_taken) return;
    Report(rule, call, id, nullptr, nullptr, "the program took no %s of %s, and the call fails",
           event, NameOf(*id).c_str());
  }
};

struct ResolveRoute : StepCheck {
  static constexpr const char* kCall = "rdma_resolve_route";
  ResolveRoute() : StepCheck(Rule::kCM_013, "RDMA_CM_EVENT_ADDR_RESOLVED") {}

  bool Before(rdma_cm_id* address, int) {
    const Section section;
    if (!section) return true;
    if (!Use(kCall, address)) return false;
    CheckDevice(kCall, address);
    return true;
  }
  void After(int result, rdma_cm_id* address, int) {
    const int error = errno;
    const Section section;
    if (!section) return;
    CheckFailure(kCall, result, error, address);
    CheckResult(kCall, result, error, id != nullptr && id->has_address);
    Id* const used = Used(address);
    if (result == 0 && used != nullptr && used->channel == nullptr) used->has_route = true;
  }
};

struct Listen : BindAddrUses<int> {
  static constexpr const char* kCall = "rdma_listen";
  void After(int result, rdma_cm_id* address, int) {
    const Section section;
    Id* const used = section ? Used(address) : nullptr;
    if (result == 0 && used != nullptr) used->is_listening = true;
  }
};

struct Connect : StepCheck {
  static constexpr const char* kCall = "rdma_connect";
  Connect() : StepCheck(Rule::kCM_014, "RDMA_CM_EVENT_ROUTE_RESOLVED") {}

  bool Before(rdma_cm_id* address, rdma_conn_param* param) {
    const Section section;
    if (!section) return true;
    if (!Use(kCall, address)) return false;
    if (id == nullptr) return true;
    CheckDevice(kCall, address);
    CheckRetries(*this, kCall, address, param);
    CheckQpNumber(*this, kCall, address, param);
    if (param != nullptr) {
      CheckPrivateData(*this, kCall, address, param->private_data_len, kConnectBytes,
                       kUdConnectBytes);
    }
    return true;
  }
  void After(int result, rdma_cm_id* address, rdma_conn_param*) {
    const int error = errno;
    const Section section;
    if (!section) return;
    CheckFailure(kCall, result, error, address);
    CheckResult(kCall, result, error, id != nullptr && id->has_route);
    Id* const used = Used(address);
    if (result == 0 && used != nullptr) used->was_connected = true;
  }
};

struct Accept : IdCheck {
  static constexpr const char* kCall = "rdma_accept";
  bool Before(rdma_cm_id* address, rdma_conn_param* param) {
    const Section section;
    if (!section) return true;
    if (!Use(kCall, address)) return false;
    if (id == nullptr || !is_programs) return true;
    if (id->answered_by != nullptr) {
      Report(Rule::kCM_006, kCall, id, nullptr, nullptr, "%s answered the request before",
             id->answered_by);
    }
    if (!id->is_request) return true;
    CheckRetries(*this, kCall, address, param);
    CheckQpNumber(*this, kCall, address, param);
    if (param == nullptr) return true;
    CheckPrivateData(*this, kCall, address, param->private_data_len, kAcceptBytes, kUdAnswerBytes);
    if (address->qp_type == IBV_QPT_RC && param->initiator_depth != RDMA_MAX_INIT_DEPTH &&
        param->initiator_depth > id->initiator_depth) {
      Report(Rule::kCM_022, kCall, id, nullptr, nullptr,
             "initiator_depth is %u, and the request event has %u", param->initiator_depth,
             id->initiator_depth);
    }
    return true;
  }
  void After(int result, rdma_cm_id* address, rdma_conn_param*) {
    const int error = errno;
    const Section section;
    if (!section) return;
    CheckFailure(kCall, result, error, address);
    if (Failed(result, error) && !id->is_request && address->qp_type != IBV_QPT_UD) {
      Report(Rule::kCM_015, kCall, id, nullptr, nullptr, "%s is %s", NameOf(*id).c_str(),
             id->is_listening ? "a listener" : "no connection request");
    }
    Id* const used = Used(address);
    if (result != 0 || used == nullptr) return;
    used->was_connected = true;
    if (!used->is_request) return;
    used->answered_by = kCall;
    Qp* const qp = All<Qp>().FindAlive(address->qp);
    if (qp == nullptr || qp->type != IBV_QPT_RC) return;
    qp->is_accepted_without_receives = !qp->has_posted_receives;
  }
};

struct Reject : IdCheck {
  static constexpr const char* kCall = "rdma_reject";
  bool Before(rdma_cm_id* address, const void*, uint8_t length) {
    const Section section;
    if (!section) return true;
    if (!Use(kCall, address)) return false;
    if (id == nullptr || !is_programs) return true;
    if (id->is_rejected) {
      Report(Rule::kCM_006, kCall, id, nullptr, nullptr, "rdma_reject answered the request before");
    }
    CheckPrivateData(*this, kCall, address, length, kRejectBytes, kUdAnswerBytes);
    return true;
  }
  void After(int result, rdma_cm_id* address, const void*, uint8_t) {
    const int error = errno;
    const Section section;
    if (!section) return;
    CheckFailure(kCall, result, error, address);
    if (Failed(result, error) && !id->is_request) {
      Report(Rule::kCM_016, kCall, id, nullptr, nullptr, "%s is %s", NameOf(*id).c_str(),
             id->is_listening ? "a listener" : "no connection request");
    }
    Id* const used = Used(address);
    if (result != 0 || used == nullptr || !used->is_request) return;
    used->answered_by = kCall;
    used->is_rejected = true;
  }
};

struct Disconnect : IdCheck {
  static constexpr const char* kCall = "rdma_disconnect";
  bool Before(rdma_cm_id* address) {
    const Section section;
    return !section || Use(kCall, address);
  }
  void After(int result, rdma_cm_id* address) {
    const int error = errno;
    const Section section;
    if (!section) return;
    CheckFailure(kCall, result, error, address);
    if (Failed(result, error) && !id->was_connected) {
      Report(Rule::kCM_026, kCall, id, nullptr, nullptr,
             "no rdma_connect or rdma_accept of %s succeeded", NameOf(*id).c_str());
    }
    Id* const used = Used(address);
    Qp* const qp = used == nullptr ? nullptr : All<Qp>().FindAlive(address->qp);
    if (result == 0 && qp != nullptr) StopTracking(*qp);
  }
};

struct GetRequest : IdCheck {
  static constexpr const char* kCall = "rdma_get_request";
  bool Before(rdma_cm_id* listener, rdma_cm_id**) {
    const Section section;
    return !section || Use(kCall, listener);
  }
  void After(int result, rdma_cm_id* listener, rdma_cm_id** out) {
    const int error = errno;
    if (result == 0) {
      ForgetOwnChannel(*out);
      Made<Id>(*this, kCall, *out, [&](Id& made) {
        made.is_request = made.has_address = true;
        made.initiator_depth = UINT8_MAX;  // the event with its value is not seen
      });
      return;
    }
    const Section section;
    if (!section) return;
    CheckFailure(kCall, result, error, listener);
    if (!Failed(result, error) || id->channel == nullptr) return;
    Report(Rule::kCM_012, kCall, id, nullptr, nullptr, "%s has an event channel",
           NameOf(*id).c_str());
  }
};

// Checks rdma_create_qp and rdma_create_qp_ex. libibverbs creates the queue pair inside the call.
template <const char* kName, class Attr>
struct CreatesQp : IdCheck {
  static constexpr const char* kCall = kName;
  template <class... A>
  bool Before(rdma_cm_id* address, A...) {
    const Section section;
    if (!section) return true;
    if (!Use(kCall, address)) return false;
    if (id == nullptr || !is_programs) return true;
    if (address->verbs == nullptr) {
      Report(Rule::kCM_017, kCall, id, nullptr, nullptr, "id->verbs is NULL");
    } else if (address->qp != nullptr) {
      Report(Rule::kCM_018, kCall, id, All<Qp>().FindAlive(address->qp), nullptr,
             "id->qp is not NULL");
    }
    return true;
  }
  void SetCaps(int result, const rdma_cm_id* address, const ibv_qp_cap& cap) {
    const Site site = CallSite();
    const Section section;
    Qp* const qp = section && result == 0 ? All<Qp>().FindAlive(address->qp) : nullptr;
    if (qp == nullptr) return;
    qp->made_by = kCall;
    qp->site = site;
    qp->cap = cap;
    qp->has_caps = true;
  }
  void After(int result, rdma_cm_id* address, ibv_pd*, ibv_qp_init_attr* attr) {
    SetCaps(result, address, attr->cap);
  }
  void After(int result, rdma_cm_id* address, ibv_qp_init_attr_ex* attr) {
    SetCaps(result, address, attr->cap);
  }
};
struct InitQpAttr : Check {
  static constexpr const char* kCall = "rdma_init_qp_attr";
  void After(int result, rdma_cm_id*, ibv_qp_attr* attr, int* mask) {
    if (result != 0 || attr->qp_state != IBV_QPS_RTR) return;
    if ((*mask & IBV_QP_MIN_RNR_TIMER) == 0 || attr->min_rnr_timer != 0) return;
    const Section section;
    if (section) AddGiven(*attr);
  }
};
constexpr char kCreateQp[] = "rdma_create_qp", kCreateQpEx[] = "rdma_create_qp_ex";

}  // namespace

void InstallIdCalls(SlotOfName slot_of) {
  Install<CreateId, decltype(::rdma_create_id)>(slot_of);
  Install<CreateEp, decltype(::rdma_create_ep)>(slot_of);
  Install<DestroysId<kDestroyId, false>, decltype(::rdma_destroy_id)>(slot_of);
  Install<DestroysId<kDestroyEp, true>, decltype(::rdma_destroy_ep)>(slot_of);
  Install<MigrateId, decltype(::rdma_migrate_id)>(slot_of);
  Install<BindAddrUses<sockaddr*>, decltype(::rdma_bind_addr)>(slot_of);
  Install<SetOptionUses<int, int, void*, size_t>, decltype(::rdma_set_option)>(slot_of);
  Install<NotifyUses<ibv_event_type>, decltype(::rdma_notify)>(slot_of);
  Install<EstablishUses<>, decltype(::rdma_establish)>(slot_of);
  Install<JoinMulticastUses<sockaddr*, void*>, decltype(::rdma_join_multicast)>(slot_of);
  Install<LeaveMulticastUses<sockaddr*>, decltype(::rdma_leave_multicast)>(slot_of);
  Install<ResolveAddr, decltype(::rdma_resolve_addr)>(slot_of);
  Install<ResolveRoute, decltype(::rdma_resolve_route)>(slot_of);
  Install<Listen, decltype(::rdma_listen)>(slot_of);
  Install<Connect, decltype(::rdma_connect)>(slot_of);
  Install<Accept, decltype(::rdma_accept)>(slot_of);
  Install<Reject, decltype(::rdma_reject)>(slot_of);
  Install<Disconnect, decltype(::rdma_disconnect)>(slot_of);
  Install<GetRequest, decltype(::rdma_get_request)>(slot_of);
  Install<InitQpAttr, decltype(::rdma_init_qp_attr)>(slot_of);
  Install<CreatesQp<kCreateQp, ibv_qp_init_attr>, decltype(::rdma_create_qp)>(slot_of);
  Install<CreatesQp<kCreateQpEx, ibv_qp_init_attr_ex>, decltype(::rdma_create_qp_ex)>(slot_of);
}

}  // namespace rdmaemu::layer::checks
