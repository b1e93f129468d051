// Owns the location of message payloads. A payload is in program memory or, on a short path, in one
// of these places:
//   - the send queue: the library copied it at post (send_entry.h),
//   - the receive slab: the program takes it when it polls the completion,
//   - a copy offer: a program's polling thread copies it between the memory of two programs
//     (emulator/abi/copy_jobs.h), while its train waits (parking.h).
// Quiesce moves every payload in a scope to program memory. Call Quiesce before every step that
// reads, moves or frees memory. No other file of the host accesses these places.
//
// A group uses no short path in two cases: it has several processes, or its host runs without
// shortcuts. Its GroupShare::sole_process is then kNone.
#pragma once

#include <span>
#include <vector>

#include "emulator/base/memory.h"
#include "emulator/transport/copy_jobs.h"
#include "emulator/transport/doors.h"
#include "emulator/transport/qp_context.h"
#include "emulator/transport/train.h"
#include "emulator/verbs/payload_scope.h"

namespace rdmaemu::transport {

enum class Placement : uint8_t {
  kPlaced,
  kSourceGone,
  kDestinationGone,
  // Memory returned ESRCH, because the process of one side has ended. Either the host will soon
  // detect the end and destroy the queue pair, or a forked child will replace the process. Until
  // then the message counts as lost, without a response.
  kProcessEnded,
};

// Returns the payload that the library copied when it posted the request at ring index `index`.
// Empty: the payload is in program memory. `state` is SendEntry::state of the request. The request
// has `sges` SGEs, which the queue pair allows, and `bytes` bytes.
std::span<const std::byte> TakenAtPost(const QueuePair& qp, uint32_t index, uint32_t state,
                                       uint32_t sges, uint32_t bytes);

class PayloadOwner {
 public:
  PayloadOwner(Memory& memory, const DoorFlags& doors)
      : memory_(memory), doors_(doors), jobs_(memory) {}

  // Writes a train's payload to program memory. A failure names the side whose memory was missing,
  // because the two sides respond differently. `context` is the QP that owns `into`.
  Placement Place(QpContext& context, Train& train, const Pieces& into);
  // Writes a SEND's payload for its receive, behind `before` (a GRH or nothing). `into` is as long
  // as both together. A small message may stay in the slot of its completion. That completion must
  // be the next one of the QP's receive queue.
  Placement PlaceReceived(QpContext& context, Train& train, std::span<const std::byte> before,
                          const Pieces& into);
  // Moves payloads for this range from the slots of the QP's receive completions to memory. Call
  // this before the host reads or writes the range. Publishes completions, because the program sees
  // the access.
  void PlaceWaiting(QpContext& context, const MemoryRange& range);
  void PlaceWaiting(QpContext& context, const Pieces& into) {
    for (const MemoryRange& range : into.ranges()) PlaceWaiting(context, range);
  }

  // Offers a copy between the memory of two programs, first to `requester`, then to `other`. A copy
  // that must follow the offered copy `behind` is offered to the same program only, because only
  // one thread of a program makes copies.
  JobTicket Offer(Time now, const QueuePair& requester, const QueuePair& other, const Pieces& from,
                  const Pieces& to, JobTicket behind) {
    return jobs_.Offer(now, requester, other, from, to, behind);
  }
  // Returns the copy's outcome. An offer that no thread takes ends after a time limit (OfferFor).
  JobOutcome OutcomeOf(Time now, JobTicket ticket) { return jobs_.OutcomeOf(now, ticket); }
  // Returns the time of the next OutcomeOf call. A thread that copies rings a doorbell when it has
  // ended.
  std::optional<Time> DeadlineOf(JobTicket ticket) { return jobs_.DeadlineOf(ticket); }
  bool HasEnded(JobTicket ticket) { return jobs_.HasEnded(ticket); }
  // Act as those of CopyJobs.
  bool IsOverdue(Time now, JobTicket ticket) { return jobs_.IsOverdue(now, ticket); }
  bool TakeBack(JobTicket ticket) { return jobs_.TakeBack(ticket); }
  // Withdraws the offer. Waits for a copy that has begun. Returns false if the copy's thread may
  // write later.
  bool End(JobTicket ticket) { return jobs_.End(ticket); }
  // Act as those of CopyJobs.
  bool Stop(JobTicket ticket) { return jobs_.Stop(ticket); }
  bool IsCopying(JobTicket ticket) { return jobs_.IsCopying(ticket); }
  bool TakeFromStopped(JobTicket ticket) { return jobs_.TakeFromStopped(ticket); }
  bool IsDirect(JobTicket ticket) { return jobs_.IsDirect(ticket); }
  bool TakesHostCopy(Time now, const QueuePair& qp, const Pieces& from) {
    return jobs_.TakesHostCopy(now, qp, from);
  }
  JobTicket OfferToHost(Time now, const QueuePair& qp, const Pieces& from, UnfilledForm& form,
                        bool may_be_direct) {
    return jobs_.OfferToHost(now, qp, from, form, may_be_direct);
  }

  void Quiesce(const PayloadScope& scope);

 private:
  void QuiesceScope(const QpPayloads& scope);
  void QuiesceScope(const QueuePayloads& scope);
  void QuiesceScope(const RegionPayloads& scope);
  void QuiesceScope(const RemotePayloads& scope);
  void QuiesceScope(const ProcessPayloads& scope);
  void QuiesceScope(const GroupPayloads& scope);

  Placement Write(Train& train, const Pieces& into);
  ReceiveSlot* SlotFor(const QpContext& context, const Train& train, const Pieces& into);
  void PlaceBeside(CompletionQueue& cq);
  void PlaceAll(GroupShare& share);

  Memory& memory_;
  const DoorFlags& doors_;
  CopyJobs jobs_;
};

}  // namespace rdmaemu::transport
