// Checks of queue pairs: creation, states and destruction.
#include <infiniband/verbs.h>

#include <algorithm>

#include "shim/layer/checks/hook.h"
#include "shim/layer/checks/install.h"
#include "shim/layer/checks/qp.h"
#include "shim/layer/checks/rule.h"

namespace rdmaemu::layer::checks {
namespace {

decltype(::ibv_query_device)* g_query_device;

bool QueryDevice(ibv_context* context, ibv_device_attr& out) {
  const OwnCall own;
  return g_query_device != nullptr && g_query_device(context, &out) == 0;
}
// Returns the active MTU of a port, or 0.
int ActiveMtu(ibv_context* context, uint8_t port) {
  const OwnCall own;
  ibv_port_attr attr{};
  return ibv_query_port(context, port, &attr) == 0 ? attr.active_mtu : 0;
}

// Reports a creation that failed because the queue pair is larger than the device supports.
void CheckDeviceLimits(const Check& check, const char* call, ibv_context* context,
                       const ibv_qp_cap& cap) {
  ibv_device_attr device;
  if (!check.is_programs || !QueryDevice(context, device)) return;
  const auto above = [](uint32_t asked, int most) {
    return most >= 0 && asked > static_cast<uint32_t>(most);
  };
  const bool has_wrs =
      above(cap.max_send_wr, device.max_qp_wr) || above(cap.max_recv_wr, device.max_qp_wr);
  const bool has_sges =
      above(cap.max_send_sge, device.max_sge) || above(cap.max_recv_sge, device.max_sge);
  if (!has_wrs && !has_sges) return;
  const Section section;
  if (!section) return;
  Report(Rule::kQP_027, call, nullptr, nullptr, nullptr,
         "the call fails: work requests %u and %u of %d, SGEs %u and %u of %d", cap.max_send_wr,
         cap.max_recv_wr, device.max_qp_wr, cap.max_send_sge, cap.max_recv_sge, device.max_sge);
}

struct CreateQp : Check {
  static constexpr const char* kCall = "ibv_create_qp";
  void After(ibv_qp* qp, ibv_pd* pd, ibv_qp_init_attr* attr) {
    const int error = errno;
    if (qp == nullptr) {
      if (error == EINVAL || error == ENOMEM) {
        CheckDeviceLimits(*this, kCall, pd->context, attr->cap);
      }
      return;
    }
    MadeQp(*this, kCall, qp, pd, attr->cap, attr->sq_sig_all != 0);
  }
};

struct DestroyQp : DestroyCheck<Qp> {
  static constexpr const char* kCall = "ibv_destroy_qp";
  bool Before(ibv_qp* qp) {
    const Section section;
    return !section || Begin(Rule::kQP_028, kCall, qp);
  }
  void After(int error, ibv_qp*) {
    const Section section;
    if (!section || !End(error == 0)) return;
    StopTracking(*object);
    QpsByNumber& numbers = QpsOf(object->context);
    const auto found = numbers.find(object->qp_num);
    if (found != numbers.end() && found->second == object) numbers.erase(found);
  }
};

// ---- states: the required and optional attributes of drivers/infiniband/core/verbs.c,
// qp_state_table

struct Transition {
  ibv_qp_state from, to;
  ibv_qp_type type;
  int required, optional;
};
constexpr Transition kTransitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPT_RC, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
     0},
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPT_UC, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
     0},
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPT_UD, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0},
    {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPT_RC,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPT_UC,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPT_UD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_RC,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
         IBV_QP_PATH_MIG_STATE | IBV_QP_RATE_LIMIT},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_UC, IBV_QP_SQ_PSN,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE |
         IBV_QP_RATE_LIMIT},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_UD, IBV_QP_SQ_PSN,
     IBV_QP_CUR_STATE | IBV_QP_QKEY | IBV_QP_RATE_LIMIT},
};

constexpr const char* kAttributes[] = {"STATE",
                                       "CUR_STATE",
                                       "EN_SQD_ASYNC_NOTIFY",
                                       "ACCESS_FLAGS",
                                       "PKEY_INDEX",
                                       "PORT",
                                       "QKEY",
                                       "AV",
                                       "PATH_MTU",
                                       "TIMEOUT",
                                       "RETRY_CNT",
                                       "RNR_RETRY",
                                       "RQ_PSN",
                                       "MAX_QP_RD_ATOMIC",
                                       "ALT_PATH",
                                       "MIN_RNR_TIMER",
                                       "SQ_PSN",
                                       "MAX_DEST_RD_ATOMIC",
                                       "PATH_MIG_STATE",
                                       "CAP",
                                       "DEST_QPN"};

std::string AttributeNames(int mask) {
  std::string names;
  for (size_t i = 0; i < std::size(kAttributes); i++) {
    if ((mask & 1 << i) != 0)
      names.append(names.empty() ? "IBV_QP_" : ", IBV_QP_") += kAttributes[i];
  }
  return names;
}

const char* StateName(ibv_qp_state state) {
  constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return static_cast<size_t>(state) < std::size(kNames) ? kNames[state] : "?";
}

// Returns whether IBTA allows the transition for every type of queue pair.
bool CanFollow(ibv_qp_state from, ibv_qp_state to) {
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return true;
  switch (from) {
    case IBV_QPS_RESET:
      return to == IBV_QPS_INIT;
    case IBV_QPS_INIT:
      return to == IBV_QPS_INIT || to == IBV_QPS_RTR;
    case IBV_QPS_RTR:
      return to == IBV_QPS_RTS;
    case IBV_QPS_RTS:
    case IBV_QPS_SQD:
      return to == IBV_QPS_RTS || to == IBV_QPS_SQD;
    case IBV_QPS_SQE:
      return to == IBV_QPS_RTS;
    default:
      return false;
  }
}

struct ModifyQp : Check {
  static constexpr const char* kCall = "ibv_modify_qp";
  const Qp* object = nullptr;
  ibv_qp_state from = IBV_QPS_UNKNOWN;

  bool Before(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
    const int mtu = MtuBelow(qp, *attr, mask);
    const Section section;
    object = section ? All<Qp>().Find(qp) : nullptr;
    if (object == nullptr) return true;
    if (object->life == Life::kEnded) {
      if (!is_programs || SeemsRemade(qp)) {
        object = nullptr;
        return true;
      }
      Report(Rule::kQP_028, kCall, object, nullptr, nullptr, "%s was destroyed before",
             NameOf(*object).c_str());
      return false;
    }
    from = qp->state;
    if (mtu != 0) {
      Report(Rule::kQP_024, kCall, object, nullptr, nullptr, "path_mtu is %d, active_mtu is %d",
             128 << attr->path_mtu, 128 << mtu);
    }
    if (is_programs && object->type == IBV_QPT_RC) CheckValues(*attr, mask);
    return true;
  }

  // Returns the port's active MTU if the path's MTU is larger, otherwise 0.
  int MtuBelow(const ibv_qp* qp, const ibv_qp_attr& attr, int mask) const {
    if (!is_programs || (mask & IBV_QP_PATH_MTU) == 0 || (mask & IBV_QP_AV) == 0) return 0;
    {
      const Section section;
      if (!section || All<Qp>().FindAlive(qp) == nullptr) return 0;
    }
    const int active = ActiveMtu(qp->context, attr.ah_attr.port_num);
    return active != 0 && static_cast<int>(attr.path_mtu) > active ? active : 0;
  }

  // Reports values that are usually those of a zeroed struct.
  void CheckValues(const ibv_qp_attr& attr, int mask) const {
    const auto is_zero = [&](int bit, auto value) { return (mask & bit) != 0 && value == 0; };
    if (is_zero(IBV_QP_RETRY_CNT, attr.retry_cnt)) {
      Report(Rule::kQP_020, kCall, object, nullptr, nullptr, "retry_cnt is 0");
    }
    if (is_zero(IBV_QP_RNR_RETRY, attr.rnr_retry)) {
      Report(Rule::kQP_021, kCall, object, nullptr, nullptr, "rnr_retry is 0");
    }
    if (is_zero(IBV_QP_MIN_RNR_TIMER, attr.min_rnr_timer) && !IsGiven(attr)) {
      Report(Rule::kQP_022, kCall, object, nullptr, nullptr, "min_rnr_timer is 0");
    }
    if (is_zero(IBV_QP_TIMEOUT, attr.timeout)) {
      Report(Rule::kQP_023, kCall, object, nullptr, nullptr, "timeout is 0");
    }
  }

  void After(int result, ibv_qp* qp, ibv_qp_attr* attr, int mask) {
    if (object == nullptr) return;
    if (result == EINVAL && is_programs) {
      Explain(qp, *attr, mask);
      return;
    }
    const Section section;
    Qp* const known = section && result == 0 ? All<Qp>().FindAlive(qp) : nullptr;
    if (known == nullptr) return;
    if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) known->max_rd_atomic = attr->max_rd_atomic;
    if ((mask & IBV_QP_STATE) == 0) return;
    if (attr->qp_state == IBV_QPS_RESET || attr->qp_state == IBV_QPS_ERR) StopTracking(*known);
    if (attr->qp_state == IBV_QPS_RESET) {
      known->is_tracked = known->could_be_tracked;
      known->max_rd_atomic = -1;
    }
  }

  // Reports the reason why a call failed with EINVAL, if a rule covers it.
  void Explain(ibv_qp* qp, const ibv_qp_attr& attr, int mask) const {
    ibv_device_attr device{};
    const bool has_device = QueryDevice(qp->context, device);
    const Section section;
    if (!section) return;
    const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attr.qp_state : from;
    if (!CanFollow(from, to)) {
      Report(Rule::kQP_019, kCall, object, nullptr, nullptr, "the call fails: %s to %s",
             StateName(from), StateName(to));
      return;
    }
    for (const Transition& each : kTransitions) {
      if (each.from != from || each.to != to || each.type != object->type) continue;
      const int missing = each.required & ~mask;
      const int extra = mask & ~(each.required | each.optional | IBV_QP_STATE | IBV_QP_CUR_STATE);
      if (missing != 0) {
        Report(Rule::kQP_017, kCall, object, nullptr, nullptr,
               "the call fails: %s to %s without %s", StateName(from), StateName(to),
               AttributeNames(missing).c_str());
      } else if (extra != 0) {
        Report(Rule::kQP_018, kCall, object, nullptr, nullptr, "the call fails: %s to %s with %s",
               StateName(from), StateName(to), AttributeNames(extra).c_str());
      }
      if (missing != 0 || extra != 0) return;
    }
    const bool too_many = ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0 &&
                           attr.max_rd_atomic > device.max_qp_init_rd_atom) ||
                          ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0 &&
                           attr.max_dest_rd_atomic > device.max_qp_rd_atom);
    if (has_device && too_many) {
      Report(Rule::kQP_026, kCall, object, nullptr, nullptr,
             "the call fails: the device supports %d as the requester, %d as the responder",
             device.max_qp_init_rd_atom, device.max_qp_rd_atom);
    }
  }
};

}  // namespace

void MadeQp(const Check& check, const char* call, ibv_qp* qp, const ibv_pd* pd,
            const ibv_qp_cap& cap, bool signals_all) {
  Made<Qp>(check, call, qp, [&](Qp& made) {
    made.pd = pd;
    made.context = qp->context;
    made.srq = qp->srq;
    made.send_cq = All<Cq>().FindAlive(qp->send_cq);
    made.recv_cq = All<Cq>().FindAlive(qp->recv_cq);
    made.mrs = &MrsOf(qp->context);
    made.qp_num = qp->qp_num;
    made.type = qp->qp_type;
    made.cap = cap;
    // The library's caller gets the caps later (rdma_create_qp).
    made.has_caps = check.is_programs;
    made.signals_all = signals_all;
    const bool is_simple =
        made.type == IBV_QPT_RC || made.type == IBV_QPT_UC || made.type == IBV_QPT_UD;
    made.could_be_tracked = is_simple && made.send_cq != nullptr && made.recv_cq != nullptr &&
                            made.send_cq->has_qp_num && made.recv_cq->has_qp_num;
    made.is_tracked = made.could_be_tracked;
    QpsOf(qp->context)[qp->qp_num] = &made;
  });
}

namespace {

struct Given {
  uint32_t dest_qp_num, rq_psn;
  bool is_filled;
};
Given g_given[kMaxGiven];
uint32_t g_next_given;

}  // namespace

void AddGiven(const ibv_qp_attr& attr) {
  g_given[g_next_given++ % kMaxGiven] = {attr.dest_qp_num, attr.rq_psn, true};
}

bool IsGiven(const ibv_qp_attr& attr) {
  return std::ranges::any_of(g_given, [&](const Given& given) {
    return given.is_filled && given.dest_qp_num == attr.dest_qp_num && given.rq_psn == attr.rq_psn;
  });
}

void InstallQpCalls(SlotOfName slot_of) {
  g_query_device = Next<decltype(::ibv_query_device)>(slot_of, "ibv_query_device");
  Install<CreateQp, decltype(::ibv_create_qp)>(slot_of);
  Install<ModifyQp, decltype(::ibv_modify_qp)>(slot_of);
  Install<DestroyQp, decltype(::ibv_destroy_qp)>(slot_of);
}

}  // namespace rdmaemu::layer::checks
