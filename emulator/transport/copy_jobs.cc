#include "emulator/transport/copy_jobs.h"

#include <algorithm>
#include <utility>

#include "emulator/transport/copy_waits.h"

namespace rdmaemu::transport {
namespace {

JobBoard& BoardOf(GroupShare& share) {
  if (share.board == nullptr) share.board = std::make_unique<JobBoard>();
  return static_cast<JobBoard&>(*share.board);
}

// Returns true when the group's threads have polled for completions recently.
bool IsPolling(Time now, GroupShare& share, JobBoard& board) {
  const uint32_t polls = std::atomic_ref(share.jobs->polls).load(std::memory_order_relaxed);
  if (polls != board.polls) {
    board.polls = polls;
    board.polled_at = now;
    return true;
  }
  return polls != 0 && now - board.polled_at < kPollingWithin;
}

uint32_t Fill(CopyRange (&out)[CopyJob::kMaxRanges], std::span<const MemoryRange> ranges) {
  std::transform(ranges.begin(), ranges.end(), out, [](const MemoryRange& range) {
    return CopyRange{range.address, range.length};
  });
  return static_cast<uint32_t>(ranges.size());
}

CopyJob& JobOf(const JobOffer& offer) { return offer.share->jobs->jobs[offer.slot]; }

// Returns true while no thread has taken the job, but one may.
bool IsUntaken(CopyJob::State state) {
  return state == CopyJob::kOffered || state == CopyJob::kAwaiting;
}
// Returns true while a thread copies, or another host names the destination.
bool IsInUse(CopyJob::State state) {
  return state == CopyJob::kTaken || state == CopyJob::kAdjusting || state == CopyJob::kRecalled;
}

// Ends an offer that no thread has taken. Returns false if one has. An awaiting job may be offered
// between two claims.
bool TakeFromProgram(CopyJob& job) {
  return job.Claim(CopyJob::kFree) || job.Claim(job.number, CopyJob::kAwaiting, CopyJob::kFree) ||
         job.Claim(CopyJob::kFree);
}

// A job that a thread may have taken.
struct Begun {
  JobPage& page;
  CopyJob& job;
  bool HasEnded() {
    const CopyJob::State state = job.Now();
    return IsUntaken(state) ? TakeFromProgram(job) : !IsInUse(state);
  }
  std::optional<uint32_t> Recall() { return page.Recall(job, job.number); }
  bool TakeBack() { return job.Claim(job.number, CopyJob::kRecalled, CopyJob::kFree); }
};

Begun BegunOf(const JobOffer& offer) { return {*offer.share->jobs, JobOf(offer)}; }

}  // namespace

JobSide SideOf(const Pieces& pieces) {
  uint64_t low = UINT64_MAX, high = 0;
  for (const MemoryRange& range : pieces.ranges()) {
    low = std::min(low, range.address);
    high = std::max(high, range.address + range.length);
  }
  return {pieces.process(), {low, high - low}};
}

JobTicket CopyJobs::Offer(Time now, const QueuePair& requester, const QueuePair& other,
                          const Pieces& from, const Pieces& to, JobTicket behind) {
  if (from.length() < kMinJobBytes || from.ranges().size() > CopyJob::kMaxRanges ||
      to.ranges().size() > CopyJob::kMaxRanges) {
    return {};
  }
  GroupShare &first = requester.share(), &second = other.share();
  if (behind) {
    const GroupShare* const same = Of(behind).withdrawn ? nullptr : Of(behind).share;
    if (same == &first) return OfferTo(now, first, requester, other, from, to);
    if (same == &second) return OfferTo(now, second, requester, other, from, to);
    return {};
  }
  const JobTicket ticket = OfferTo(now, first, requester, other, from, to);
  return ticket || &first == &second ? ticket : OfferTo(now, second, requester, other, from, to);
}

std::optional<uint32_t> CopyJobs::FreeSlot(Time now, GroupShare& share) {
  if (share.sole_process == ProcessId::kNone || share.jobs == nullptr) return std::nullopt;
  JobBoard& board = BoardOf(share);
  const uint32_t slot = board.offered % JobPage::kSlots;
  if (board.refused || board.in_use[slot] || !IsPolling(now, share, board)) return std::nullopt;
  return slot;
}

JobTicket CopyJobs::OfferTo(Time now, GroupShare& share, const QueuePair& requester,
                            const QueuePair& other, const Pieces& from, const Pieces& to) {
  const bool push = from.IsOf(share.sole_process);
  const Pieces& own = push ? from : to;
  const Pieces& far = push ? to : from;
  if (!own.IsOf(share.sole_process) || !far.IsOf(far.process())) return {};
  const auto slot = FreeSlot(now, share);
  if (!slot) return {};
  if (memory_.IsShared(from.process(), from.ranges()) ||
      memory_.IsShared(to.process(), to.ranges())) {
    return {};  // the host copies once, too
  }
  const uint32_t pid = memory_.PidFor(share.sole_process, far.process());
  if (pid == 0) return {};
  return Publish({.share = &share,
                  .slot = *slot,
                  .requester = requester.handle,
                  .other = other.handle,
                  .from = SideOf(from),
                  .to = SideOf(to),
                  .length = from.length(),
                  .offered_at = now},
                 {pid, push, own.ranges(), far.ranges()});
}

bool CopyJobs::TakesHostCopy(Time now, const QueuePair& qp, const Pieces& from) {
  GroupShare& share = qp.share();
  return from.length() >= kMinJobBytes && from.ranges().size() <= CopyJob::kMaxRanges &&
         from.IsOf(share.sole_process) && FreeSlot(now, share) &&
         !memory_.IsShared(from.process(), from.ranges()) &&
         memory_.HostPidFor(share.sole_process) != 0;
}

JobTicket CopyJobs::OfferToHost(Time now, const QueuePair& qp, const Pieces& from,
                                UnfilledForm& form, bool may_be_direct) {
  if (!TakesHostCopy(now, qp, from)) return {};
  GroupShare& share = qp.share();
  const bool is_referred = may_be_direct && form.takes_references() && share.jobs_place.fd >= 0 &&
                           !BoardOf(share).refused_directly;
  const std::span<std::byte> to = form.payload();
  const MemoryRange range{reinterpret_cast<uint64_t>(to.data()), to.size()};
  return Publish({.share = &share,
                  .slot = *FreeSlot(now, share),
                  .requester = qp.handle,
                  .other = qp.handle,
                  .from = SideOf(from),
                  .to = {},
                  .length = from.length(),
                  .offered_at = now,
                  .is_to_host = true,
                  .awaits_destination = is_referred},
                 {.pid = memory_.HostPidFor(share.sole_process),
                  .push = true,
                  .own = from.ranges(),
                  .other = {&range, 1},
                  .mark_at = form.mark(),
                  .mark = form.filled_mark()},
                 is_referred ? &form : nullptr);
}

JobTicket CopyJobs::Publish(const JobOffer& offer, const Copied& copied, UnfilledForm* refers) {
  if (free_.empty()) {
    offers_.emplace_back();
    free_.push_back(static_cast<uint32_t>(offers_.size()));
  }
  const JobTicket ticket{free_.back()};
  free_.pop_back();
  Of(ticket) = offer;
  GroupShare& share = *offer.share;
  JobBoard& board = BoardOf(share);
  board.in_use[offer.slot] = true;
  CopyJob& job = share.jobs->jobs[offer.slot];
  job.number = board.offered;
  job.pid = job.mark_pid = copied.pid;
  job.pull = copied.push ? 0 : 1;
  job.own_count = Fill(job.own, copied.own);
  job.other_count = Fill(job.other, copied.other);
  job.mark_address = reinterpret_cast<uint64_t>(copied.mark_at);
  job.mark = static_cast<uint8_t>(copied.mark);
  job.Set(refers != nullptr ? CopyJob::kAwaiting : CopyJob::kOffered);
  if (refers != nullptr) {
    JobReference reference = share.jobs_place;
    reference.slot = offer.slot;
    reference.number = job.number;
    refers->Refer(reference);
  }
  std::atomic_ref(share.jobs->offered).store(++board.offered, std::memory_order_release);
  return ticket;
}

JobOutcome CopyJobs::OutcomeOf(Time now, JobTicket ticket) {
  const JobOutcome outcome = StateOf(now, Of(ticket));
  if (outcome != JobOutcome::kWaiting) Free(ticket);
  return outcome;
}

JobOutcome CopyJobs::StateOf(Time now, JobOffer& offer) {
  if (offer.share == nullptr || offer.withdrawn) return JobOutcome::kNotCopied;
  JobBoard& board = BoardOf(*offer.share);
  CopyJob& job = JobOf(offer);
  switch (job.Now()) {
    case CopyJob::kDone:
      // A program that completes its jobs counts as polling.
      board.polled_at = board.copied_at = now;
      return JobOutcome::kCopied;
    case CopyJob::kTaken:
    case CopyJob::kRecalled:
      if (now < LookAt(offer)) return JobOutcome::kWaiting;
      offer.looked_at = now;
      return TakeFromStopped(offer) ? JobOutcome::kNotCopied : JobOutcome::kWaiting;
    case CopyJob::kAdjusting:
      return JobOutcome::kWaiting;
    case CopyJob::kAwaiting:
    case CopyJob::kOffered:
      if (offer.is_to_host || now < EndOf(offer) || !TakeFromProgram(job)) {
        return JobOutcome::kWaiting;
      }
      return JobOutcome::kNotCopied;
    case CopyJob::kRefused:
      // The program may still copy to this host.
      (job.pid == job.mark_pid ? board.refused : board.refused_directly) = true;
      return JobOutcome::kNotCopied;
    default:
      return JobOutcome::kNotCopied;
  }
}

std::optional<Time> CopyJobs::DeadlineOf(JobTicket ticket) {
  const JobOffer& offer = Of(ticket);
  const bool ended = offer.share == nullptr || offer.withdrawn;
  if (ended) return offer.offered_at;
  const CopyJob::State state = JobOf(offer).Now();
  if (IsUntaken(state)) return EndOf(offer);
  return IsInUse(state) ? std::optional(LookAt(offer)) : std::nullopt;
}

bool CopyJobs::HasEnded(JobTicket ticket) {
  const JobOffer& offer = Of(ticket);
  if (offer.share == nullptr || offer.withdrawn) return true;
  const CopyJob::State state = JobOf(offer).Now();
  return !IsUntaken(state) && !IsInUse(state);
}

Time CopyJobs::EndOf(const JobOffer& offer) {
  if (JobOf(offer).Now() == CopyJob::kAwaiting) return offer.offered_at + kAwaitDestinationFor;
  const bool is_busy =
      std::atomic_ref(offer.share->jobs->busy).load(std::memory_order_relaxed) != 0;
  return std::max(offer.offered_at, BoardOf(*offer.share).copied_at) +
         (is_busy ? kOfferWhileBusyFor : OfferFor(offer.length));
}

Time CopyJobs::LookAt(const JobOffer& offer) {
  return std::max(offer.offered_at, offer.looked_at) + kLookAfter;
}

bool CopyJobs::TakeFromStopped(JobOffer& offer) {
  Begun copy = BegunOf(offer);
  return RecallCopy(memory_, copy).is_taken_back;
}

bool CopyJobs::Stop(JobTicket ticket) {
  JobOffer& offer = Of(ticket);
  if (offer.share == nullptr) return true;
  if (!offer.withdrawn) return Withdraw(offer);
  // A thread that had no room for the job may have offered it again.
  int looks = 1;
  return AwaitCopy(memory_, BegunOf(offer), looks);
}

bool CopyJobs::End(JobTicket ticket) {
  const bool has_ended = Stop(ticket);
  Free(ticket);
  return has_ended;
}

bool CopyJobs::IsCopying(JobTicket ticket) {
  const JobOffer& offer = Of(ticket);
  return offer.share != nullptr && IsInUse(JobOf(offer).Now());
}

bool CopyJobs::IsDirect(JobTicket ticket) {
  const JobOffer& offer = Of(ticket);
  return offer.share != nullptr && offer.is_to_host && JobOf(offer).pid != JobOf(offer).mark_pid;
}

bool CopyJobs::IsOverdue(Time now, JobTicket ticket) {
  JobOffer& offer = Of(ticket);
  if (offer.share == nullptr || offer.withdrawn) return false;
  const CopyJob::State state = JobOf(offer).Now();
  // The other host has offered the copy to the program since the last look.
  if (state == CopyJob::kOffered && std::exchange(offer.awaits_destination, false)) {
    offer.offered_at = now;
  }
  return IsUntaken(state) && now >= EndOf(offer);
}

bool CopyJobs::TakeBack(JobTicket ticket) {
  const JobOffer& offer = Of(ticket);
  if (offer.share == nullptr || offer.withdrawn || !TakeFromProgram(JobOf(offer))) {
    return false;
  }
  Free(ticket);
  return true;
}

void CopyJobs::Free(JobTicket ticket) {
  JobOffer& offer = Of(ticket);
  if (offer.share != nullptr) BoardOf(*offer.share).in_use[offer.slot] = false;
  offer = {};
  free_.push_back(ticket.number);
}

void CopyJobs::Forget(const GroupShare& share) {
  if (share.jobs != nullptr) {
    std::atomic_ref(share.jobs->is_ended).store(1, std::memory_order_relaxed);
  }
  WithdrawIf([&](const JobOffer& offer) { return offer.share == &share; });
  for (JobOffer& offer : offers_) {
    if (offer.share == &share) offer.share = nullptr;
  }
}

bool CopyJobs::Withdraw(JobOffer& offer) {
  offer.withdrawn = true;
  if (TakeFromProgram(JobOf(offer))) return true;
  JobBoard& board = BoardOf(*offer.share);
  // After the host has waited in vain for one job of a group, it looks only once for that group's
  // other jobs.
  int looks = board.stuck ? 1 : kMostLooks;
  if (AwaitCopy(memory_, BegunOf(offer), looks)) return true;
  board.stuck = board.refused = true;
  return false;
}

}  // namespace rdmaemu::transport
