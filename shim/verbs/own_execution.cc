#include "shim/verbs/own_execution.h"

#include <errno.h>
#include <sys/uio.h>

#include <atomic>
#include <optional>

#include "shim/client/deferred_signals.h"
#include "shim/verbs/cq_events.h"
#include "shim/verbs/guarded_copy.h"
#include "shim/verbs/lanes.h"

namespace rdmaemu::shim {
namespace {

// Takes the turn of the process's copying thread (JobPage::busy), to execute a request.
class CopyTurn {
 public:
  explicit CopyTurn(JobPage& page) : page_(page), has_(page.BeginCopies(CopyingThread())) {
    if (!has_) return;
    std::atomic_ref(page.executes).store(1, std::memory_order_seq_cst);
    recalls_ = std::atomic_ref(page.recalls).load(std::memory_order_seq_cst);
  }
  ~CopyTurn() {
    if (!has_) return;
    std::atomic_ref(page_.executes).store(0, std::memory_order_release);
    page_.EndCopies();
  }
  CopyTurn(const CopyTurn&) = delete;
  CopyTurn& operator=(const CopyTurn&) = delete;

  bool has() const { return has_; }
  CopyGuard guard() const { return {&page_.recalls, recalls_}; }

 private:
  JobPage& page_;
  bool has_;
  uint32_t recalls_ = 0;
};

// The place for the completion of a request, in the send queue's CQ. Other threads may poll and arm
// the queue while this thread is stopped.
class CompletionPlace {
 public:
  explicit CompletionPlace(CompletionQueue& cq) : cq_(cq) {
    // Another thread may execute a request of another queue pair. A signal handler may have
    // interrupted that thread.
    for (int i = 0; i < kMostLockTries && !has_lock_; i++) has_lock_ = cq.execution_lock.TryLock();
  }
  ~CompletionPlace() {
    if (has_lock_) cq_.execution_lock.Unlock();
  }
  CompletionPlace(const CompletionPlace&) = delete;
  CompletionPlace& operator=(const CompletionPlace&) = delete;

  // Returns true if `count` completions can be put in front of all others. An entry of the ring may
  // be an earlier completion of the same queue pair.
  bool IsFree(uint32_t count) {
    if (!has_lock_ || cq_.has_timestamps || !cq_.ring.IsConsumersStill() || !cq_.ring.Empty() ||
        MayHaveMessages(cq_)) {
      return false;
    }
    has_events_ = UsesEvents();
    const uint32_t most = has_events_ ? 1 : std::min(CqControl::kMostExecuted, cq_.ring.usable());
    return cq_.control->CountExecuted() + count <= most;
  }
  // After IsFree. Puts the completion, and raises the event of an armed queue, in the order of
  // CompletionQueue::Publish.
  void Put(const CqEntry& entry) {
    CqControl& control = *cq_.control;
    if (!has_events_) {
      control.PutExecuted(entry);
      // Another thread may arm the queue for the first time, before it can see the completion. If
      // it has polled the completion before it has armed the queue, the event is a spare one.
      if (UsesEvents()) DisarmAndRaise();
      return;
    }
    const uint32_t takes = std::atomic_ref(control.executed_takes).load(std::memory_order_relaxed);
    // A signal handler may wait for a thread that awaits the event.
    std::optional<client::DeferredSignals> deferred;
    const ArmedLane armed(cq_);
    bool raises = control.DisarmAny(armed.lane());
    if (raises) deferred.emplace(client::kEndingSignals);
    control.PutExecuted(entry);
    // Another thread may have armed the queue meanwhile, before it could see the completion.
    const ArmedLane armed_now(cq_);
    if (control.DisarmBeforeTake(takes, armed_now.lane())) raises = true;
    if (raises) RaiseEvent(cq_);
  }

 private:
  bool UsesEvents() const {
    return std::atomic_ref(cq_.control->uses_events).load(std::memory_order_seq_cst) != 0;
  }
  void DisarmAndRaise() {
    std::optional<client::DeferredSignals> deferred(client::kEndingSignals);
    const ArmedLane armed(cq_);
    if (cq_.control->DisarmAny(armed.lane())) RaiseEvent(cq_);
  }

  static constexpr int kMostLockTries = 64;

  CompletionQueue& cq_;
  bool has_lock_ = false, has_events_ = false;
};

bool IsSignaled(const QueuePair& qp, const SendEntry& wqe) {
  return qp.signal_all || (wqe.send_flags & IBV_SEND_SIGNALED) != 0;
}

// The two sides of an executed request, in the addresses of their processes.
struct Sides {
  iovec own, other;
};

std::optional<Sides> SidesOf(const Permit& permit, const SendEntry& wqe) {
  const bool reads = wqe.opcode == IBV_WR_RDMA_READ;
  const uint64_t bytes = wqe.length, at = wqe.operation.rdma.remote_addr;
  if (!permit.other.Covers(wqe.operation.rdma.rkey, at, bytes,
                           reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE)) {
    return std::nullopt;
  }
  const iovec other{FromCookie<void>(permit.other.AddressOf(at)), bytes};
  if ((wqe.send_flags & IBV_SEND_INLINE) != 0) {
    return Sides{{const_cast<std::byte*>(wqe.Data()), bytes}, other};
  }
  const auto& sge = wqe.Sges()[0];
  if (wqe.num_sge != 1 || sge.length != bytes || permit.own.key == 0 ||
      !permit.own.Covers(sge.lkey, sge.addr, bytes, reads ? IBV_ACCESS_LOCAL_WRITE : 0)) {
    return std::nullopt;
  }
  return Sides{{FromCookie<void>(permit.own.AddressOf(sge.addr)), bytes}, other};
}

// Returns the permit of the queue at this index, whole. Its number is 0 if there is none.
Permit PermitAt(QueuePair& qp, JobPage& page, uint32_t index) {
  Permit permit = qp.control->permit.Read();
  if (permit.number == 0 || permit.index != index || permit.lane != 0) return {};
  if (permit.lent_slot == 0) return permit;
  if (permit.lent_slot > JobPage::kLentPermits) return {};
  const Permit lent = page.lent[permit.lent_slot - 1].Read();
  if (lent.number == 0 || lent.number != permit.lent_number) return {};
  permit.pid = lent.pid;
  permit.other = lent.other;
  return permit;
}

// Counts the request for the host, and for the peer's host.
void Count(QueuePair& qp, JobPage& page, const SendEntry& wqe, const Permit& permit) {
  const auto add = [&](Executed& all) {
    (wqe.opcode == IBV_WR_RDMA_READ ? all.reads : all.writes).Add(wqe.length, permit.mtu_bytes);
  };
  add(qp.control->executed);
  if (permit.lent_slot != 0) add(page.lent[permit.lent_slot - 1].executed);
}

// Copies by a permit. Counts the request before a host that ends the permit continues. Returns
// false if the host must execute the request.
bool Copy(QueuePair& qp, JobPage& page, const SendEntry& wqe, uint32_t index) {
  const CopyTurn turn(page);
  if (!turn.has()) return false;
  const Permit permit = PermitAt(qp, page, index);
  if (permit.number == 0) return false;
  const std::optional<Sides> sides = SidesOf(permit, wqe);
  if (!sides) return false;
  const int before = errno;
  const ssize_t moved =
      CopyGuarded(turn.guard(), static_cast<pid_t>(permit.pid), wqe.opcode == IBV_WR_RDMA_READ,
                  {&sides->own, 1}, {&sides->other, 1});
  if (moved < 0 && (errno == EPERM || errno == ENOSYS)) qp.is_refused = true;
  errno = before;
  if (moved != static_cast<ssize_t>(wqe.length)) return false;
  Count(qp, page, wqe, permit);
  return true;
}

// Returns what the host would have put into the queue (Core::CompleteSend).
CqEntry CompletionOf(const QueuePair& qp, const SendEntry& wqe) {
  CqEntry entry{};
  entry.wc.wr_id = wqe.wr_id;
  entry.wc.status = IBV_WC_SUCCESS;
  entry.wc.opcode = wqe.opcode == IBV_WR_RDMA_READ    ? IBV_WC_RDMA_READ
                    : wqe.opcode == IBV_WR_RDMA_WRITE ? IBV_WC_RDMA_WRITE
                                                      : IBV_WC_SEND;
  if (wqe.opcode == IBV_WR_SEND_WITH_IMM) entry.wc.wc_flags = IBV_WC_WITH_IMM;
  entry.wc.byte_len = wqe.length;
  entry.wc.qp_num = qp.base.qp_num;
  return entry;
}

bool IsSend(const SendEntry& wqe) {
  return wqe.opcode == IBV_WR_SEND || wqe.opcode == IBV_WR_SEND_WITH_IMM;
}

bool IsExecutable(const SendEntry& wqe) {
  if (IsSend(wqe)) return wqe.length <= kMaxLaneBytes;
  return (wqe.opcode == IBV_WR_RDMA_WRITE || wqe.opcode == IBV_WR_RDMA_READ) && wqe.length > 0 &&
         wqe.length <= kMaxPermittedBytes;
}

// Consecutive requests in the send ring.
struct Posted {
  uint32_t index, count, signaled = 0;
  bool are_executable = true, are_sends = true;
};

Posted LookAt(const QueuePair& qp, uint32_t index, uint32_t count) {
  Posted posted{index, count};
  for (uint32_t i = 0; i < count; i++) {
    const auto& wqe = *qp.send_ring.SlotAs<SendEntry>(index + i);
    posted.are_executable &= IsExecutable(wqe);
    posted.are_sends &= IsSend(wqe);
    if (IsSignaled(qp, wqe)) posted.signaled++;
  }
  return posted;
}

bool MayCopy(const QueuePair& qp, const Posted& posted) {
  return posted.count == 1 && !qp.is_refused && CanCopyGuarded() &&
         (posted.signaled > 0 || qp.memory.now_ns() - qp.executed_ns >= kStreamGap_ns);
}

bool Execute(QueuePair& qp, const Posted& posted) {
  if (posted.are_sends) return AddToLane(qp, posted.index, posted.count);
  return Copy(qp, *client::Jobs(), *qp.send_ring.SlotAs<SendEntry>(posted.index), posted.index);
}

void Complete(QueuePair& qp, const Posted& posted, CompletionPlace& place) {
  for (uint32_t i = 0; i < posted.count; i++) {
    const auto& wqe = *qp.send_ring.SlotAs<SendEntry>(posted.index + i);
    if (IsSignaled(qp, wqe)) place.Put(CompletionOf(qp, wqe));
  }
}

}  // namespace

bool ExecutePosted(QueuePair& qp, uint32_t index, uint32_t count) {
  const uint64_t now_ns = qp.memory.now_ns();
  const bool may_execute =
      qp.control->permit.Number() != 0 && now_ns - qp.posted_ns < kPermitFor_ns &&
      qp.send_ring.Consumer() == index &&
      std::atomic_ref(qp.control->state).load(std::memory_order_acquire) == IBV_QPS_RTS;
  const Posted posted = may_execute ? LookAt(qp, index, count) : Posted{index, count};
  if (!may_execute || !posted.are_executable) {
    qp.posted_ns = now_ns;
    return false;
  }
  if (client::Jobs() == nullptr || !client::MayCall()) return false;
  if (!(posted.are_sends ? AwaitLane(qp, index, count) : MayCopy(qp, posted))) return false;
  std::optional<CompletionPlace> place;
  if (posted.signaled > 0 && !place.emplace(*Of(qp.base.send_cq)).IsFree(posted.signaled)) {
    return false;
  }
  if (!Execute(qp, posted)) return false;
  if (place) {
    Complete(qp, posted, *place);
  } else if (!posted.are_sends) {
    qp.memory.Begin();
    qp.executed_ns = qp.memory.now_ns();
  }
  return true;
}

}  // namespace rdmaemu::shim
