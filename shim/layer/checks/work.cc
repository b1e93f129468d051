#include "shim/layer/checks/work.h"

#include "shim/layer/checks/hook.h"

namespace rdmaemu::layer::checks {
namespace {

constexpr uint32_t kGrhBytes = 40;

bool IsAtomic(const ibv_send_wr& wr) {
  return wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}
bool ReadsRemote(const ibv_send_wr& wr) { return wr.opcode == IBV_WR_RDMA_READ || IsAtomic(wr); }
bool WritesRemote(const ibv_send_wr& wr) {
  return wr.opcode == IBV_WR_RDMA_WRITE || wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
bool IsInline(const ibv_send_wr& wr) { return (wr.send_flags & IBV_SEND_INLINE) != 0; }

// Returns how many SGEs of a work request may be read. Returns 0 for a list that is longer than the
// queue allows, because the library refuses such a list without reading it.
int SgeCount(int count, uint32_t most) {
  return count < 0 || static_cast<uint32_t>(count) > most ? 0 : count;
}

uint64_t Length(const ibv_sge* sges, int count) {
  uint64_t length = 0;
  for (int i = 0; i < count; i++) length += sges[i].length;
  return length;
}

Mr* FindMr(const MrsByLkey& mrs, uint32_t lkey) {
  const auto found = mrs.find(lkey);
  return found == mrs.end() ? nullptr : found->second;
}

// Checks the SGEs of one work request. `device_writes`: the device writes to the buffers.
void CheckSges(const Object& queue, const void* pd, const MrsByLkey& mrs, const ibv_sge* sges,
               int count, bool device_writes, const char* call) {
  for (int i = 0; i < count; i++) {
    const ibv_sge& sge = sges[i];
    const Mr* const mr = FindMr(mrs, sge.lkey);
    if (mr == nullptr || sge.length == 0) continue;
    const std::string name = NameOf(*mr);
    if (mr->life == Life::kEnded) {
      Report(Rule::kMR_002, call, &queue, mr, nullptr, "SGE %d: %s is deregistered", i,
             name.c_str());
      continue;
    }
    if (mr->pd != pd && pd != nullptr) {
      Report(Rule::kMR_003, call, &queue, mr, nullptr, "SGE %d: %s has another protection domain",
             i, name.c_str());
    }
    if (!mr->is_plain) continue;
    if (sge.addr < mr->begin || sge.addr - mr->begin > mr->length ||
        sge.length > mr->length - (sge.addr - mr->begin)) {
      Report(Rule::kMR_001, call, &queue, mr, nullptr,
             "SGE %d: 0x%llx, %u bytes; %s: 0x%llx, %llu bytes", i,
             static_cast<unsigned long long>(sge.addr), sge.length, name.c_str(),
             static_cast<unsigned long long>(mr->begin),
             static_cast<unsigned long long>(mr->length));
    }
    if (device_writes && (mr->access & IBV_ACCESS_LOCAL_WRITE) == 0) {
      Report(Rule::kMR_004, call, &queue, mr, nullptr, "SGE %d: %s has access 0x%x", i,
             name.c_str(), mr->access);
    }
  }
}

void CheckSgeCount(const Object& queue, int count, uint32_t most, const char* call) {
  if (count <= 0 || static_cast<uint32_t>(count) <= most) return;
  Report(Rule::kQP_006, call, &queue, nullptr, nullptr, "num_sge is %d, at most %u fit", count,
         most);
}

void CheckInline(const Qp& qp, const ibv_send_wr& wr, const char* call) {
  if (!IsInline(wr)) return;
  if (ReadsRemote(wr)) {
    Report(Rule::kQP_015, call, &qp, nullptr, nullptr, "opcode %d", wr.opcode);
    return;
  }
  const uint64_t length = Length(wr.sg_list, SgeCount(wr.num_sge, qp.cap.max_send_sge));
  if (!qp.has_caps || length <= qp.cap.max_inline_data) return;
  Report(Rule::kQP_007, call, &qp, nullptr, nullptr, "%llu bytes, and max_inline_data is %u",
         static_cast<unsigned long long>(length), qp.cap.max_inline_data);
}

void CheckRemote(const Qp& qp, const ibv_send_wr& wr, const char* call) {
  const uint64_t length = Length(wr.sg_list, SgeCount(wr.num_sge, qp.cap.max_send_sge));
  if (ReadsRemote(wr) && qp.max_rd_atomic == 0) {
    Report(Rule::kQP_016, call, &qp, nullptr, nullptr, "max_rd_atomic is 0");
  }
  if (IsAtomic(wr)) {
    if (wr.wr.atomic.remote_addr % 8 != 0) {
      Report(Rule::kQP_013, call, &qp, nullptr, nullptr, "the remote address is 0x%llx",
             static_cast<unsigned long long>(wr.wr.atomic.remote_addr));
    }
    if (length < 8) {
      Report(Rule::kQP_014, call, &qp, nullptr, nullptr, "the buffer has %llu bytes",
             static_cast<unsigned long long>(length));
    }
    return;
  }
  if (!WritesRemote(wr) && !ReadsRemote(wr)) return;
  if (length > 0 && wr.wr.rdma.remote_addr == 0 && wr.wr.rdma.rkey == 0) {
    Report(Rule::kMR_014, call, &qp, nullptr, nullptr, "%llu bytes",
           static_cast<unsigned long long>(length));
  }
}

bool Supports(const Qp& qp, const ibv_send_wr& wr) {
  const bool is_rdma = WritesRemote(wr) || ReadsRemote(wr);
  if (qp.type == IBV_QPT_UD) return !is_rdma;
  return qp.type != IBV_QPT_UC || !ReadsRemote(wr);
}

void AddUses(Work& work, const MrsByLkey& mrs, const ibv_sge* sges, int count) {
  for (int i = 0; i < count && work.count < Work::kMaxMrs; i++) {
    Mr* const mr = FindMr(mrs, sges[i].lkey);
    if (mr == nullptr || mr->life != Life::kAlive) continue;
    mr->in_flight++;
    work.uses[work.count++] = {mr, mr->serial};
  }
}

// Returns whether only the program may change the memory of a region, and the memory is present.
bool IsPrivate(const Mr& mr) {
  constexpr unsigned kOthers =
      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ON_DEMAND;
  return mr.life == Life::kAlive && mr.is_direct && (mr.access & kOthers) == 0;
}

bool ArePrivate(const Qp& qp, const ibv_sge* sges, int count) {
  for (int i = 0; i < count; i++) {
    const Mr* const mr = FindMr(*qp.mrs, sges[i].lkey);
    if (mr == nullptr || !IsPrivate(*mr)) return false;
  }
  return true;
}

// Returns whether the memory of a send must be compared at its completion.
bool IsSampled(Qp& qp, const ibv_send_wr& wr, int count) {
  constexpr uint64_t kFirst = 64, kEach = 16;
  if (ReadsRemote(wr) || !ArePrivate(qp, wr.sg_list, count)) return false;
  const uint64_t number = qp.sends_seen++;
  return number < kFirst || number % kEach == 0;
}

// Returns whether the memory of a receive must be watched. A watch costs two system calls.
bool IsWatched(Qp& qp, const ibv_recv_wr& wr, int count) {
  constexpr uint64_t kFirst = 16, kEach = 256;
  if (WatchError() != 0 || !ArePrivate(qp, wr.sg_list, count)) return false;
  const uint64_t number = qp.receives_seen++;
  return number < kFirst || number % kEach == 0;
}

}  // namespace

void CheckSendState(const Qp& qp, const ibv_qp* address, const char* call) {
  const ibv_qp_state state = address->state;
  if (state != IBV_QPS_RESET && state != IBV_QPS_INIT && state != IBV_QPS_RTR) return;
  constexpr const char* kNames[] = {"RESET", "INIT", "RTR"};
  Report(Rule::kQP_001, call, &qp, nullptr, nullptr, "the state is %s", kNames[state]);
}

bool CheckSend(const Qp& qp, const ibv_send_wr& wr, const char* call) {
  if (qp.type != IBV_QPT_RC && qp.type != IBV_QPT_UC && qp.type != IBV_QPT_UD) return true;
  if (qp.has_caps) CheckSgeCount(qp, wr.num_sge, qp.cap.max_send_sge, call);
  if (!Supports(qp, wr)) {
    Report(Rule::kQP_009, call, &qp, nullptr, nullptr, "opcode %d on a queue pair of type %d",
           wr.opcode, qp.type);
    return true;
  }
  CheckInline(qp, wr, call);
  if (qp.type == IBV_QPT_UD && wr.wr.ud.ah == nullptr) {
    Report(Rule::kQP_010, call, &qp, nullptr, nullptr, "wr.ud.ah is NULL");
    return false;
  }
  CheckRemote(qp, wr, call);
  if (!IsInline(wr) && qp.mrs != nullptr) {
    CheckSges(qp, qp.pd, *qp.mrs, wr.sg_list, SgeCount(wr.num_sge, qp.cap.max_send_sge),
              ReadsRemote(wr), call);
  }
  return true;
}

void CheckReceiveQueue(Qp& qp, const ibv_qp* address, const char* call) {
  if (qp.is_accepted_without_receives && qp.srq == nullptr) {
    qp.is_accepted_without_receives = false;
    Report(Rule::kCM_028, call, &qp, nullptr, nullptr,
           "rdma_accept was called before the first ibv_post_recv");
  }
  if (address->srq != nullptr) {
    Report(Rule::kQP_031, call, &qp, All<Srq>().FindAlive(address->srq), nullptr,
           "%s has a shared receive queue", NameOf(qp).c_str());
  }
}

void CheckReceive(const Qp& qp, const ibv_recv_wr& wr, const char* call) {
  const int count = SgeCount(wr.num_sge, qp.cap.max_recv_sge);
  if (qp.has_caps && qp.srq == nullptr) {
    CheckSgeCount(qp, wr.num_sge, qp.cap.max_recv_sge, call);
  }
  if (qp.type == IBV_QPT_UD) {
    const uint64_t length = Length(wr.sg_list, count);
    if (length < kGrhBytes) {
      Report(Rule::kQP_012, call, &qp, nullptr, nullptr, "the buffer has %llu bytes",
             static_cast<unsigned long long>(length));
    }
  }
  if (qp.mrs != nullptr) CheckSges(qp, qp.pd, *qp.mrs, wr.sg_list, count, true, call);
}

void CheckSrqReceive(const Srq& srq, const ibv_context* context, const ibv_recv_wr& wr,
                     const char* call) {
  CheckSgeCount(srq, wr.num_sge, srq.attr.max_sge, call);
  CheckSges(srq, srq.pd, MrsOf(context), wr.sg_list, SgeCount(wr.num_sge, srq.attr.max_sge), true,
            call);
}

bool HasSignalled(Qp& qp) { return qp.sends.count() > qp.unsignalled; }

void PushSend(Qp& qp, const ibv_send_wr& wr, bool samples) {
  Work& work = qp.sends.Push();
  work.is_signalled = qp.signals_all || (wr.send_flags & IBV_SEND_SIGNALED) != 0;
  if (!work.is_signalled) {
    qp.unsignalled++;
  } else if (qp.send_cq != nullptr) {
    qp.send_cq->signalled++;
    qp.send_cq->in_flight++;
  }
  if (IsInline(wr) || qp.mrs == nullptr) return;
  const int count = SgeCount(wr.num_sge, qp.cap.max_send_sge);
  AddUses(work, *qp.mrs, wr.sg_list, count);
  if (samples && IsSampled(qp, wr, count)) {
    work.sample = Sample::Take(wr.sg_list, count);
    if (work.sample != nullptr) work.sample->place = CallPlace();
  }
}

void PushReceive(Qp& qp, const ibv_recv_wr& wr, bool watches) {
  Work& work = qp.receives.Push();
  if (qp.recv_cq != nullptr) qp.recv_cq->in_flight++;
  if (qp.mrs == nullptr) return;
  const int count = SgeCount(wr.num_sge, qp.cap.max_recv_sge);
  AddUses(work, *qp.mrs, wr.sg_list, count);
  if (!watches || !IsWatched(qp, wr, count)) return;
  work.watch = Watch::Begin(wr.sg_list, count, qp.type == IBV_QPT_UD ? kGrhBytes : 0);
  if (work.watch != nullptr) work.watch->place = CallPlace();
  if (WatchError() != 0) NoteUnwatched(WatchError());
}

}  // namespace rdmaemu::layer::checks
