// Queue pairs from creation to destruction.
#include <algorithm>

#include "emulator/abi/slab.h"
#include "tests/sim/traffic.h"

namespace rdmaemu::sim {
namespace {

constexpr int kAllRemote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                           IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr uint32_t kPsnMask = 0xffffff;
constexpr uint32_t kMaxSges = 4;
constexpr uint32_t kDatagramBytes = 1024;
constexpr uint32_t kReceiveBytes = 16 * 1024;  // of one queue, so that a program can have many

uint32_t DrawPsn(Random& random) {
  // Half of them are so close to the maximum that they wrap.
  return random.Below(2) == 0 ? random.Next24() : kPsnMask - random.Below(64);
}

uint64_t BuildersOf(ibv_qp_type type) {
  uint64_t builders = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  if (type == IBV_QPT_UD) return builders;
  builders |=
      IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_BIND_MW;
  if (type == IBV_QPT_UC) return builders;
  return builders | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_LOCAL_INV |
         IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
         IBV_QP_EX_WITH_SEND_WITH_INV;
}

}  // namespace

void Traffic::Say(const Program& program, const std::string& what) {
  if (world_.recorder().tells_story()) world_.recorder().Say(world_.now(), program.name(), what);
}

std::shared_ptr<ReceiveQueue> Traffic::MakeReceives(Program& program, ibv_qp_type type,
                                                    bool shared) {
  Random& random = world_.random();
  auto receives = std::make_shared<ReceiveQueue>();
  receives->program = &program;
  receives->buffer_bytes =
      type == IBV_QPT_UD ? kGrhBytes + kDatagramBytes : 1u << (6 + random.Below(8));
  receives->depth = 1 + random.Below(std::min(24u, kReceiveBytes / receives->buffer_bytes));
  if (!shared && type == IBV_QPT_RC && huge_queues_left_ > 0) {
    huge_queues_left_--;
    receives->buffer_bytes = kHugeBytes;
    receives->depth = 1;
  }
  if (!shared) return receives;
  const Process::Entered entered(program.process());
  ibv_srq_init_attr attr{nullptr, {receives->depth, kMaxSges, 0}};
  receives->srq = program.process().Keep(ibv_create_srq(program.pd(), &attr));
  if (receives->srq == nullptr) return nullptr;
  world_.tally().Count("op.create_srq");
  receives->checked =
      completions_.Open(CompletionChecker::Kind::kShared, program.name() + " shared receive queue");
  return receives;
}

void Traffic::OpenQueues(Endpoint& endpoint) {
  endpoint.sends_checked =
      completions_.Open(CompletionChecker::Kind::kSend, endpoint.name() + " send queue");
  if (endpoint.receives->srq == nullptr) {
    endpoint.receives->checked =
        completions_.Open(CompletionChecker::Kind::kReceive, endpoint.name() + " receive queue");
  } else {
    completions_.SetHolders(endpoint.receives->checked, ++endpoint.receives->users);
  }
  const auto promise = endpoint.type == IBV_QPT_RC   ? DeliveryChecker::Promise::kExactlyOnceInOrder
                       : endpoint.type == IBV_QPT_UC ? DeliveryChecker::Promise::kAtMostOnceInOrder
                                                     : DeliveryChecker::Promise::kAtMostOnce;
  endpoint.stream = delivery_.Open(promise, "from " + endpoint.name());
  by_qpn_[{endpoint.program, endpoint.qpn}] = &endpoint;
}

Endpoint* Traffic::Create(Program& program, ibv_qp_type type, bool shared) {
  Random& random = world_.random();
  auto endpoint = std::make_unique<Endpoint>();
  endpoint->number = static_cast<uint32_t>(endpoints_.size());
  endpoint->program = &program;
  endpoint->type = type;
  endpoint->depth = 1 + random.Below(random.Below(3) == 0 ? 40 : 12);
  endpoint->inline_bytes = random.Below(2) == 0   ? 0
                           : random.Below(2) == 0 ? kSlabBytes
                                                  : random.Below(kSlabBytes + 1);
  endpoint->signal_all = random.Below(4) == 0;
  if (shared && !world_.plan().converses) {
    std::shared_ptr<ReceiveQueue>& common = shared_receives_[&program];
    if (common == nullptr) common = MakeReceives(program, type, true);
    endpoint->receives = common;
  } else {
    endpoint->receives = MakeReceives(program, type, false);
  }
  if (endpoint->receives == nullptr) return nullptr;
  endpoint->send_cq = &program.QueueWithRoom(endpoint->depth);
  endpoint->recv_cq = &program.QueueWithRoom(endpoint->receives->depth);

  const Process::Entered entered(program.process());
  ibv_qp_init_attr_ex attr{};
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = program.pd();
  attr.send_ops_flags = BuildersOf(type);
  attr.send_cq = endpoint->send_cq->cq;
  attr.recv_cq = endpoint->recv_cq->cq;
  attr.srq = endpoint->receives->srq;
  attr.qp_type = type;
  attr.sq_sig_all = endpoint->signal_all ? 1 : 0;
  attr.cap = {endpoint->depth, endpoint->receives->depth, kMaxSges, kMaxSges,
              endpoint->inline_bytes};
  endpoint->qp = program.process().Keep(ibv_create_qp_ex(program.process().context(), &attr));
  if (endpoint->qp == nullptr) return nullptr;
  endpoint->qpn = endpoint->qp->qp_num;
  OpenQueues(*endpoint);
  endpoints_.push_back(std::move(endpoint));
  Say(program, "makes " + endpoints_.back()->name());
  return endpoints_.back().get();
}

void Traffic::ToInit(Endpoint& endpoint) {
  Random& random = world_.random();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = endpoint.rights = kAllRemote;
  int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  if (endpoint.type == IBV_QPT_UD) {
    attr.qkey = kQkey;
    mask |= IBV_QP_QKEY;
  } else {
    // Some QPs refuse all remote requests except SENDs.
    if (world_.plan().misuse > 0 && random.Below(12) == 0) {
      attr.qp_access_flags = endpoint.rights = IBV_ACCESS_LOCAL_WRITE;
    }
    mask |= IBV_QP_ACCESS_FLAGS;
  }
  if (Modify(endpoint, mask, attr) != 0) {
    world_.verdict().Complain("verbs", endpoint.name() + " does not go to INIT");
  }
  endpoint.in_reset = false;
}

int Traffic::Modify(Endpoint& endpoint, int mask, const ibv_qp_attr& attr) {
  const Process::Entered entered(endpoint.program->process());
  ibv_qp_attr copy = attr;
  return ibv_modify_qp(endpoint.qp, &copy, mask);
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
  // Several round trips, so that a good network has no retransmissions.
  const Duration least =
      same_machine ? Duration(1'000'000)
                   : 8 * (world_.plan().latency + world_.plan().jitter) + Duration(1'000'000);
  link.timeout = 8;
  while (AckTimeout(link.timeout) < least) link.timeout++;
  link.timeout = static_cast<uint8_t>(link.timeout + random.Below(4));
  return link;
}

int Traffic::ToReadyToReceive(Endpoint& endpoint, uint32_t psn) {
  const Link& link = endpoint.link;
  const Machine& there = endpoint.peer->program->machine();
  ibv_qp_attr attr{};
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.sgid_index = link.ipv6 ? 2 : 1;
  attr.ah_attr.grh.hop_limit = 64;
  attr.ah_attr.grh.dgid = (link.ipv6 ? there.ipv6() : there.ipv4()).ToGid();
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = link.mtu;
  attr.dest_qp_num = endpoint.peer->qpn;
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

void Traffic::MakeReady(Endpoint& endpoint, uint32_t receive_psn, uint32_t send_psn) {
  if (endpoint.stage != Stage::kMade || !endpoint.program->Lives()) return;
  if (!endpoint.program->Runs()) {  // its host is paused
    world_.After(std::chrono::milliseconds(1), [this, &endpoint, receive_psn, send_psn] {
      MakeReady(endpoint, receive_psn, send_psn);
    });
    return;
  }
  if (ToReadyToReceive(endpoint, receive_psn) != 0 || ToReadyToSend(endpoint, send_psn) != 0) {
    world_.verdict().Complain("verbs", endpoint.name() + " does not go to RTS");
    return;
  }
  endpoint.stage = Stage::kReady;
}

void Traffic::Connect(Endpoint& a, Endpoint& b, const Link& link, Duration late) {
  const uint32_t from_a = DrawPsn(world_.random()), from_b = DrawPsn(world_.random());
  a.peer = &b;
  b.peer = &a;
  a.link = b.link = link;
  MakeReady(a, from_b, from_a);
  if (late.count() == 0) {
    MakeReady(b, from_a, from_b);
  } else {
    a.disturbed = b.disturbed = true;
    world_.After(late, [this, &b, from_a, from_b] { MakeReady(b, from_a, from_b); });
  }
  const std::string type = a.type == IBV_QPT_RC ? "RC" : "UC";
  if (from_a > kPsnMask - 64) world_.tally().Count("connect.psn_wraps");
  world_.tally().Count("connect." + type + (a.SameMachine() ? ".same_machine" : ".wire"));
  Say(*a.program, type + " " + a.name() + " and " + b.name() + " are connected, PSNs " +
                      std::to_string(from_a) + ", " + std::to_string(from_b) + ", timeout " +
                      std::to_string(link.timeout) + ", retries " +
                      std::to_string(link.retry_count) + ", rnr " + std::to_string(link.rnr_retry));
}

void Traffic::MakeDatagramReady(Endpoint& endpoint) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  int failed = Modify(endpoint, IBV_QP_STATE, attr);
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = DrawPsn(world_.random());
  failed |= Modify(endpoint, IBV_QP_STATE | IBV_QP_SQ_PSN, attr);
  if (failed != 0) world_.verdict().Complain("verbs", endpoint.name() + " does not go to RTS");
  endpoint.stage = Stage::kReady;
  world_.tally().Count("connect.UD");
}

void Traffic::MayFlush(Endpoint& endpoint) {
  completions_.MayFlush(endpoint.sends_checked);
  if (endpoint.receives->srq == nullptr) completions_.MayFlush(endpoint.receives->checked);
}

void Traffic::ToError(Endpoint& endpoint) {
  if (!endpoint.program->Runs() || endpoint.stage == Stage::kGone) return;
  MayFlush(endpoint);
  if (endpoint.peer != nullptr) endpoint.peer->disturbed = true;
  endpoint.stage = Stage::kError;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  Say(*endpoint.program, endpoint.name() + " to ERR");
  world_.tally().Count("op.modify_to_error");
  if (Modify(endpoint, IBV_QP_STATE, attr) != 0) {
    world_.verdict().Complain("verbs", endpoint.name() + " does not go to ERR");
  }
  Harvest(*endpoint.program);
}

void Traffic::Drain(Endpoint& endpoint) {
  if (!endpoint.Usable() || endpoint.draining) return;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  Say(*endpoint.program, endpoint.name() + " to SQD");
  // The QP may be in ERR, which its program cannot see yet.
  if (Modify(endpoint, IBV_QP_STATE, attr) == 0) {
    world_.tally().Count("op.drain");
    endpoint.draining = true;
  }
}

void Traffic::Undrain(Endpoint& endpoint) {
  if (!endpoint.Usable() || !endpoint.draining) return;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  // Refused while requests are outstanding.
  if (Modify(endpoint, IBV_QP_STATE, attr) != 0) return;
  Say(*endpoint.program, endpoint.name() + " to RTS again");
  world_.tally().Count("op.undrain");
  endpoint.draining = false;
}

// No posted work completes any more.
void Traffic::End(Endpoint& endpoint) {
  Program& program = *endpoint.program;
  completions_.Close(endpoint.sends_checked);
  endpoint.stage = Stage::kGone;
  if (endpoint.peer != nullptr) {
    endpoint.peer->disturbed = true;
    delivery_.Close(endpoint.peer->stream);
  }
  for (Request& request : endpoint.sends) Settle(endpoint, request, std::nullopt);
  endpoint.sends.clear();
  if (endpoint.receives->srq != nullptr) return;
  completions_.Close(endpoint.receives->checked);
  if (!program.Lives()) return;
  for (Receive& receive : endpoint.receives->posted) GiveBack(program, receive);
  endpoint.receives->posted.clear();
}

Endpoint* Traffic::Reset(Endpoint& endpoint) {
  Program& program = *endpoint.program;
  if (!program.Runs() || endpoint.stage == Stage::kGone) return nullptr;
  Harvest(program);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  Say(program, endpoint.name() + " to RESET");
  world_.tally().Count("op.reset");
  if (Modify(endpoint, IBV_QP_STATE, attr) != 0) {
    world_.verdict().Complain("verbs", endpoint.name() + " does not go to RESET");
    return nullptr;
  }
  Harvest(program);
  End(endpoint);
  auto next = std::make_unique<Endpoint>();
  next->number = static_cast<uint32_t>(endpoints_.size());
  next->program = &program;
  next->type = endpoint.type;
  next->qp = endpoint.qp;
  next->qpn = endpoint.qpn;
  next->send_cq = endpoint.send_cq;
  next->recv_cq = endpoint.recv_cq;
  next->depth = endpoint.depth;
  next->inline_bytes = endpoint.inline_bytes;
  next->signal_all = endpoint.signal_all;
  next->receives = endpoint.receives;
  next->receives->dead = false;
  OpenQueues(*next);
  endpoints_.push_back(std::move(next));
  return endpoints_.back().get();
}

void Traffic::Destroy(Endpoint& endpoint) {
  if (endpoint.stage == Stage::kGone || !endpoint.program->Runs()) return;
  Program& program = *endpoint.program;
  Harvest(program);
  Say(program, "destroys " + endpoint.name());
  world_.tally().Count("op.destroy_qp");
  {
    const Process::Entered entered(program.process());
    ibv_qp* const qp = std::exchange(endpoint.qp, nullptr);
    if (ibv_destroy_qp(qp) != 0) {
      world_.verdict().Complain("verbs", endpoint.name() + " cannot be destroyed");
    } else {
      program.process().Forget(qp);
    }
  }
  // Earlier completions are still in the queue, and the program may poll them.
  Harvest(program);
  endpoint.send_cq->promised -= endpoint.depth;
  endpoint.recv_cq->promised -= endpoint.receives->depth;
  by_qpn_.erase({&program, endpoint.qpn});
  End(endpoint);
}

void Traffic::DestroyAll(Program& program) {
  for (const auto& endpoint : endpoints_) {
    if (endpoint->program == &program) Destroy(*endpoint);
  }
  for (const auto& lease : leases_) {
    if (lease->owner == &program && lease->region.mr != nullptr) {
      (void)program.Deregister(lease->region);
    }
  }
  const auto shared = shared_receives_.find(&program);
  if (shared == shared_receives_.end() || shared->second == nullptr) return;
  const Process::Entered entered(program.process());
  ibv_srq* const srq = shared->second->srq;
  if (ibv_destroy_srq(srq) != 0) {
    world_.verdict().Complain("leaks", program.name() + " cannot give back its SRQ");
  } else {
    program.process().Forget(srq);
  }
}

void Traffic::Abandon(Program& program) {
  for (const auto& endpoint : endpoints_) {
    if (endpoint->program != &program || endpoint->stage == Stage::kGone) continue;
    End(*endpoint);
    if (endpoint->receives->srq != nullptr) completions_.Close(endpoint->receives->checked);
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
