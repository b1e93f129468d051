// Owns where the bytes of messages are. Program memory is the place of a payload. On a short way
// the payload may also be
//   - in the send slab: the library took it when the request was posted (slab.h),
//   - in the receive slab: the program fetches it when it polls the completion,
//   - on offer: a program's polling thread copies it between the memory of the two programs
//     (emulator/abi/copy_jobs.h), while its train waits (parking.h).
// Quiesce makes program memory the only place for everything in a scope. Every transition that
// observes, moves or frees memory calls it. No other file of the host touches the slabs or the
// offers. Where a group has several processes, or the host runs without shortcuts, its
// GroupShare::sole_process is kNone and nothing takes a short way.
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
  // Memory says ESRCH: the process of one side has ended. Either the host learns of that in a
  // moment and the queue pair goes with its process, or a forked child will stand in for the
  // process. The message counts as lost until then: nobody answers it.
  kProcessEnded,
};

// The payload that the library took when it posted the request at ring index `index`; empty:
// program memory has it. `state` is rxe_send_wqe::state of the request.
std::span<const std::byte> TakenAtPost(const QueuePair& qp, uint32_t index, uint32_t state,
                                       uint32_t bytes);

class PayloadOwner {
 public:
  PayloadOwner(Memory& memory, const DoorFlags& doors)
      : memory_(memory), doors_(doors), jobs_(memory) {}

  // Writes a train's payload to program memory, and says which side's memory was missing when that
  // fails: the two ends answer differently. `context` is the QP that the memory is of.
  Placement Place(QpContext& context, Train& train, const Pieces& into);
  // The payload of a SEND for its receive, with `before` (a GRH, or nothing) ahead of it; `into` is
  // as long as both. A small message may be left beside its completion, which must be the next one
  // that the QP's receive queue gets.
  Placement PlaceReceived(QpContext& context, Train& train, std::span<const std::byte> before,
                          const Pieces& into);
  // Places what waits beside the QP's receive completions for the bytes of the range. Call this
  // before the host reads or writes them.
  void PlaceWaiting(QpContext& context, const MemoryRange& range);
  void PlaceWaiting(QpContext& context, const Pieces& into) {
    for (const MemoryRange& range : into.ranges()) PlaceWaiting(context, range);
  }

  // Offers a copy between the memory of two programs; `requester` is asked before `other`.
  JobTicket Offer(Time now, const QueuePair& requester, const QueuePair& other, const Pieces& from,
                  const Pieces& to) {
    return jobs_.Offer(now, requester, other, from, to);
  }
  // What became of it. An offer that nobody takes ends once `now` is late enough.
  JobOutcome OutcomeOf(Time now, JobTicket ticket) { return jobs_.OutcomeOf(now, ticket); }
  // When OutcomeOf must be called next; nullopt: a thread is copying and says when it has ended.
  std::optional<Time> DeadlineOf(JobTicket ticket) { return jobs_.DeadlineOf(ticket); }
  // Ends the offer if nobody has taken it, and waits for a copy that has begun.
  void End(JobTicket ticket) { jobs_.End(ticket); }

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
