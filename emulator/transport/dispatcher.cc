#include "emulator/transport/dispatcher.h"

namespace rdmaemu::transport {
namespace {

std::optional<ibv_qp_type> TypeOf(wire::TransportClass transport) {
  switch (transport) {
    case wire::TransportClass::kRc:
      return IBV_QPT_RC;
    case wire::TransportClass::kUc:
      return IBV_QPT_UC;
    case wire::TransportClass::kUd:
      return IBV_QPT_UD;
    default:
      return std::nullopt;
  }
}

}  // namespace

void Dispatcher::Deliver(Time now, Train& train, std::unique_ptr<Train>* local) {
  if (train.headers.destination_qpn == wire::kMulticastQpn) {
    for (QueuePair* qp : core_.env.verbs.MulticastReceivers(train.destination, nullptr)) {
      Dispatch(now, *qp, train, nullptr);
    }
    return;
  }
  QueuePair* qp = core_.env.verbs.FindQp(train.destination, train.headers.destination_qpn);
  if (qp == nullptr) {
    core_.counters.dropped_no_qp++;
    return;
  }
  Dispatch(now, *qp, train, local);
}

bool Dispatcher::DispatchRun(Time now, QueuePair& qp, Train& train) {
  Device& device = *qp.device;
  if (Refusal(qp, train) != nullptr || !HandleRun(now, core_.ContextOf(qp), train)) return false;
  device.counters.rcvd_pkts += train.packets;
  return true;
}

bool Dispatcher::HandleRun(Time now, QpContext& context, Train& train) {
  if (!train.info().request) return completer_.HandleRun(now, context, train);
  RequestArrives(context, train);
  if (context.qp->state() == IBV_QPS_RTR && !context.responder.established) return false;
  return responder_.HandleRun(now, context, train);
}

uint64_t* Dispatcher::Refusal(const QueuePair& qp, const Train& train, bool counts) {
  EngineCounters& counters = core_.counters;
  if (!core_.env.verbs.Carries(qp)) return &counters.dropped_no_link;
  if (TypeOf(train.headers.transport) != qp.type ||
      (train.info().atomic_write && !qp.device->profile.serves_atomic_writes()) ||
      (train.info().flush && !qp.device->profile.serves_flushes())) {
    return &counters.dropped_bad_opcode;
  }
  if (!(train.info().request ? TakesRequests(qp.state()) : IsSending(qp))) {
    return &counters.dropped_wrong_state;
  }
  if (!wire::PkeysMatch(train.headers.pkey, qp.device->PkeyAt(qp.attr.pkey_index))) {
    if (counts && qp.device->bad_pkeys < Device::kMostBadPkeys) qp.device->bad_pkeys++;
    return &counters.dropped_wrong_pkey;
  }
  if (qp.type == IBV_QPT_UD) {
    return train.headers.qkey == qp.attr.qkey ? nullptr : &counters.dropped_wrong_qkey;
  }
  if (train.source != qp.path.destination || train.destination != qp.path.source) {
    return &counters.dropped_wrong_address;
  }
  return nullptr;
}

void Dispatcher::Dispatch(Time now, QueuePair& qp, Train& train, std::unique_ptr<Train>* local) {
  if (uint64_t* const counter = Refusal(qp, train); counter != nullptr) {
    ++*counter;
    return;
  }
  QpContext& context = core_.ContextOf(qp);
  const wire::OpcodeInfo& info = train.info();
  const bool may_park = local != nullptr && qp.type == IBV_QPT_RC;
  if (!train.was_parked) qp.device->counters.rcvd_pkts += train.packets;
  if (qp.type == IBV_QPT_UD) return unreliable_.HandleUd(now, context, train);
  if (!info.request) {
    // The response belongs to an earlier incarnation of the QP. Epoch 0 marks responses to
    // packets that a fault rule re-injected.
    if (local != nullptr && train.epoch != 0 && train.epoch != context.epoch) {
      core_.counters.dropped_old_answer += train.packets;
      return;
    }
    if (may_park && parking_.Park(now, context, *local)) return;
    return completer_.Handle(now, context, train);
  }
  if (qp.state() == IBV_QPS_RTR && !context.responder.established) {
    context.responder.established = true;
    if (qp.device->profile.raises_comm_est) core_.env.verbs.RaiseQp(qp, IBV_EVENT_COMM_EST);
  }
  if (qp.type == IBV_QPT_UC) return unreliable_.HandleUc(now, context, train);
  if (may_park && parking_.Park(now, context, *local)) return;
  RequestArrives(context, train);
  responder_.Handle(now, context, train);
}

}  // namespace rdmaemu::transport
