// Queue pairs from creation to destruction.
#include <algorithm>

#include "tests/sim/traffic.h"

namespace rdmaemu::sim {
namespace {

constexpr int kAllRemote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                           IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr uint32_t kPsnMask = 0xffffff;
constexpr uint32_t kMaxSges = 4;
constexpr uint32_t kReceiveBytes = 16 * 1024;  // of one queue, so that a program can have many

uint32_t DrawPsn(Random& random) {
  // Half of them so close to the end that they wrap.
  return random.Below(2) == 0 ? random.Next24() : kPsnMask - random.Below(64);
}

}  // namespace

Endpoint* Traffic::Create(Program& program, ibv_qp_type type) {
  Random& random = world_.random();
  auto endpoint = std::make_unique<Endpoint>();
  endpoint->number = static_cast<uint32_t>(endpoints_.size());
  endpoint->program = &program;
  endpoint->type = type;
  endpoint->depth = 1 + random.Below(random.Below(3) == 0 ? 40 : 12);
  endpoint->inline_bytes = random.Below(2) == 0 ? 0 : random.Below(257);
  endpoint->signal_all = random.Below(4) == 0;
  auto receives = std::make_shared<ReceiveQueue>();
  receives->program = &program;
  receives->buffer_bytes = type == IBV_QPT_UD ? 40 + 1024 : 1u << (6 + random.Below(8));
  receives->depth = 1 + random.Below(std::min(24u, kReceiveBytes / receives->buffer_bytes));
  receives->users = 1;
  endpoint->send_cq = &program.QueueWithRoom(endpoint->depth);
  endpoint->recv_cq = &program.QueueWithRoom(receives->depth);

  CreateQpIn in{};
  in.pd = program.pd();
  in.send_cq = endpoint->send_cq->made.handle;
  in.recv_cq = endpoint->recv_cq->made.handle;
  in.type = type;
  in.signal_all = endpoint->signal_all ? 1 : 0;
  in.cap = {endpoint->depth, receives->depth, kMaxSges, kMaxSges, endpoint->inline_bytes};
  if (program.process().Call(CallOp::kCreateQp, in, endpoint->made) != 0) return nullptr;
  const CreateQpOut& made = endpoint->made;
  endpoint->send_ring = Ring(program.process().At(made.send_queue) + sizeof(QpControl),
                             made.send_slots, made.send_slot_bytes);
  receives->ring =
      Ring(program.process().At(made.recv_queue), made.recv_slots, made.recv_slot_bytes);
  endpoint->receives = std::move(receives);
  endpoint->sends_checked =
      completions_.Open(CompletionChecker::Kind::kSend, endpoint->name() + " send queue");
  endpoint->receives->checked =
      completions_.Open(CompletionChecker::Kind::kReceive, endpoint->name() + " receive queue");
  const auto promise = type == IBV_QPT_RC   ? DeliveryChecker::Promise::kExactlyOnceInOrder
                       : type == IBV_QPT_UC ? DeliveryChecker::Promise::kAtMostOnceInOrder
                                            : DeliveryChecker::Promise::kAtMostOnce;
  endpoint->stream = delivery_.Open(promise, "from " + endpoint->name());
  by_qpn_[{&program, made.qpn}] = endpoint.get();

  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = kAllRemote;
  if (Modify(*endpoint, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
             attr) != 0) {
    world_.verdict().Complain("verbs", endpoint->name() + " does not go to INIT");
  }
  endpoints_.push_back(std::move(endpoint));
  if (world_.recorder().tells_story()) {
    world_.recorder().Say(world_.now(), program.name(), "makes " + endpoints_.back()->name());
  }
  return endpoints_.back().get();
}

int Traffic::Modify(Endpoint& endpoint, int mask, const ibv_qp_attr& attr) {
  ModifyQpIn in{};
  in.handle = endpoint.made.handle;
  in.mask = mask;
  in.attr = attr;
  return endpoint.program->process().Call(CallOp::kModifyQp, in);
}

Link Traffic::DrawLink(bool same_machine) {
  Random& random = world_.random();
  Link link;
  link.mtu = static_cast<ibv_mtu>(IBV_MTU_256 + random.Below(5));
  link.ipv6 = random.Below(4) == 0;
  link.reads = static_cast<uint8_t>(1 + random.Below(16));
  link.retry_count = static_cast<uint8_t>(random.Below(2) == 0 ? 7 : random.Below(7));
  link.rnr_retry = static_cast<uint8_t>(random.Below(2) == 0 ? 7 : random.Below(7));
  link.min_rnr_timer = static_cast<uint8_t>(1 + random.Below(20));
  // Several round trips, so that on a good network nothing is repeated.
  const Duration least =
      same_machine ? Duration(1'000'000)
                   : 8 * (world_.plan().latency + world_.plan().jitter) + Duration(1'000'000);
  link.timeout = 8;
  while (AckTimeout(link.timeout) < least) link.timeout++;
  link.timeout = static_cast<uint8_t>(link.timeout + random.Below(4));
  return link;
}

ibv_qp_attr Traffic::PathTo(const Endpoint& from, const Endpoint& to, const Link& link) {
  ibv_qp_attr attr{};
  Machine& there = to.program->machine();
  (void)from;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.sgid_index = link.ipv6 ? 2 : 1;
  attr.ah_attr.grh.hop_limit = 64;
  attr.ah_attr.grh.dgid = (link.ipv6 ? there.ipv6() : there.ipv4()).ToGid();
  return attr;
}

int Traffic::ToReadyToReceive(Endpoint& endpoint, uint32_t psn) {
  const Link& link = endpoint.link;
  ibv_qp_attr attr = PathTo(endpoint, *endpoint.peer, link);
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = link.mtu;
  attr.dest_qp_num = endpoint.peer->made.qpn;
  attr.rq_psn = psn;
  attr.max_dest_rd_atomic = link.reads;
  attr.min_rnr_timer = link.min_rnr_timer;
  int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (endpoint.type == IBV_QPT_RC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  return Modify(endpoint, mask, attr);
}

int Traffic::ToReadyToSend(Endpoint& endpoint, uint32_t psn) {
  const Link& link = endpoint.link;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = psn;
  attr.timeout = link.timeout;
  attr.retry_cnt = link.retry_count;
  attr.rnr_retry = link.rnr_retry;
  attr.max_rd_atomic = link.reads;
  int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (endpoint.type == IBV_QPT_RC) {
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  return Modify(endpoint, mask, attr);
}

void Traffic::Connect(Endpoint& a, Endpoint& b, const Link& link, Duration late) {
  const uint32_t from_a = DrawPsn(world_.random()), from_b = DrawPsn(world_.random());
  a.peer = &b;
  b.peer = &a;
  a.link = b.link = link;
  const auto make_ready = [this](Endpoint& end, uint32_t receive_psn, uint32_t send_psn) {
    if (end.stage != Stage::kMade || !end.program->Lives()) return;
    if (ToReadyToReceive(end, receive_psn) != 0 || ToReadyToSend(end, send_psn) != 0) {
      world_.verdict().Complain("verbs", end.name() + " does not go to RTS");
      return;
    }
    end.stage = Stage::kReady;
  };
  make_ready(a, from_b, from_a);
  if (late.count() == 0) {
    make_ready(b, from_a, from_b);
  } else {
    a.disturbed = b.disturbed = true;
    world_.After(late, [make_ready, &b, from_a, from_b] { make_ready(b, from_a, from_b); });
  }
  world_.tally().Count(a.SameMachine() ? "connect.by_hand.same_machine" : "connect.by_hand.wire");
  if (world_.recorder().tells_story()) {
    world_.recorder().Say(
        world_.now(), a.program->name(),
        a.name() + " and " + b.name() + " are connected, PSNs " + std::to_string(from_a) + ", " +
            std::to_string(from_b) + ", timeout " + std::to_string(link.timeout) + ", retries " +
            std::to_string(link.retry_count) + ", rnr " + std::to_string(link.rnr_retry));
  }
}

void Traffic::MayFlush(Endpoint& endpoint) {
  completions_.MayFlush(endpoint.sends_checked);
  completions_.MayFlush(endpoint.receives->checked);
}

void Traffic::ToError(Endpoint& endpoint) {
  if (!endpoint.program->Runs() || endpoint.stage == Stage::kGone) return;
  MayFlush(endpoint);
  if (endpoint.peer != nullptr) endpoint.peer->disturbed = true;
  endpoint.stage = Stage::kError;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  if (world_.recorder().tells_story()) {
    world_.recorder().Say(world_.now(), endpoint.program->name(), endpoint.name() + " to ERR");
  }
  world_.tally().Count("op.modify_to_error");
  if (Modify(endpoint, IBV_QP_STATE, attr) != 0) {
    world_.verdict().Complain("verbs", endpoint.name() + " does not go to ERR");
  }
  Harvest(*endpoint.program);
}

void Traffic::Destroy(Endpoint& endpoint) {
  if (endpoint.stage == Stage::kGone) return;
  Program& program = *endpoint.program;
  Harvest(program);
  if (world_.recorder().tells_story()) {
    world_.recorder().Say(world_.now(), program.name(), "destroys " + endpoint.name());
  }
  world_.tally().Count("op.destroy_qp");
  if (program.process().Call(CallOp::kDestroyQp, HandleIn{endpoint.made.handle, 0}) != 0) {
    world_.verdict().Complain("verbs", endpoint.name() + " cannot be destroyed");
  }
  // What completed before stands in the queue still, and may be polled.
  Harvest(program);
  completions_.Close(endpoint.sends_checked);
  if (endpoint.receives->srq == 0) completions_.Close(endpoint.receives->checked);
  endpoint.stage = Stage::kGone;
  if (endpoint.peer != nullptr) {
    endpoint.peer->disturbed = true;
    delivery_.Close(endpoint.peer->stream);
  }
  endpoint.send_cq->room += endpoint.depth;
  if (endpoint.receives->srq == 0) endpoint.recv_cq->room += endpoint.receives->depth;
  by_qpn_.erase({&program, endpoint.made.qpn});
  for (Request& request : endpoint.sends) Settle(endpoint, request, std::nullopt);
  endpoint.sends.clear();
  if (endpoint.receives->srq == 0) {
    for (Receive& receive : endpoint.receives->posted) GiveBack(program, receive);
    endpoint.receives->posted.clear();
  }
}

void Traffic::Abandon(Program& program) {
  for (const auto& endpoint : endpoints_) {
    if (endpoint->program != &program || endpoint->stage == Stage::kGone) continue;
    endpoint->stage = Stage::kGone;
    completions_.Close(endpoint->sends_checked);
    completions_.Close(endpoint->receives->checked);
    for (Request& request : endpoint->sends) Settle(*endpoint, request, std::nullopt);
    endpoint->sends.clear();
    if (endpoint->peer == nullptr) continue;
    endpoint->peer->disturbed = true;
    delivery_.Close(endpoint->peer->stream);
  }
}

void Traffic::Disturb(Machine& machine) {
  for (const auto& endpoint : endpoints_) {
    if (endpoint->peer == nullptr) continue;
    if (&endpoint->program->machine() == &machine ||
        &endpoint->peer->program->machine() == &machine) {
      endpoint->disturbed = true;
    }
  }
}

}  // namespace rdmaemu::sim
