#include "emulator/transport/copy_jobs.h"

#include <algorithm>

namespace rdmaemu::transport {
namespace {

JobBoard& BoardOf(GroupShare& share) {
  if (share.board == nullptr) share.board = std::make_unique<JobBoard>();
  return static_cast<JobBoard&>(*share.board);
}

// True when the group's threads look for completions these days.
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

CopyJob& JobOf(const JobTicket& ticket) { return ticket.share->jobs->jobs[ticket.slot]; }

}  // namespace

JobTicket CopyJobs::Offer(Time now, GroupShare& first, GroupShare& second, const Pieces& from,
                          const Pieces& to) {
  if (from.length() < kMinJobBytes || from.ranges().size() > CopyJob::kMaxRanges ||
      to.ranges().size() > CopyJob::kMaxRanges) {
    return {};
  }
  const JobTicket ticket = OfferTo(now, first, from, to);
  return ticket || &first == &second ? ticket : OfferTo(now, second, from, to);
}

JobTicket CopyJobs::OfferTo(Time now, GroupShare& share, const Pieces& from, const Pieces& to) {
  if (share.sole_process == ProcessId::kNone || share.jobs == nullptr) return {};
  const bool push = from.IsOf(share.sole_process);
  const Pieces& own = push ? from : to;
  const Pieces& other = push ? to : from;
  if (!own.IsOf(share.sole_process) || !other.IsOf(other.process())) return {};
  JobBoard& board = BoardOf(share);
  const uint32_t slot = board.offered % JobPage::kSlots;
  JobBoard::Known& known = board.known[slot];
  if (board.refused || known.in_use || !IsPolling(now, share, board)) return {};
  const uint32_t pid = memory_.PidFor(share.sole_process, other.process());
  if (pid == 0) return {};

  known = {true, share.sole_process, other.process(), now};
  board.in_use++;
  CopyJob& job = share.jobs->jobs[slot];
  job.number = board.offered;
  job.pid = pid;
  job.pull = push ? 0 : 1;
  job.own_count = Fill(job.own, own.ranges());
  job.other_count = Fill(job.other, other.ranges());
  job.Set(CopyJob::kOffered);
  std::atomic_ref(share.jobs->offered).store(++board.offered, std::memory_order_release);
  return {&share, slot};
}

JobOutcome CopyJobs::Look(Time now, const JobTicket& ticket) {
  JobBoard& board = BoardOf(*ticket.share);
  CopyJob& job = JobOf(ticket);
  switch (job.Now()) {
    case CopyJob::kDone:
      // Who does its jobs need not look for completions to be seen at work.
      board.polled_at = now;
      return JobOutcome::kCopied;
    case CopyJob::kTaken:
      return JobOutcome::kWaiting;
    case CopyJob::kOffered:
      if (now < LookAgainAt(ticket) || !job.Claim(CopyJob::kFree)) return JobOutcome::kWaiting;
      return JobOutcome::kNotCopied;
    case CopyJob::kRefused:
      board.refused = true;
      return JobOutcome::kNotCopied;
    default:
      return JobOutcome::kNotCopied;
  }
}

Time CopyJobs::LookAgainAt(const JobTicket& ticket) {
  return BoardOf(*ticket.share).known[ticket.slot].offered_at + kOfferFor;
}

bool CopyJobs::IsOffered(const JobTicket& ticket) {
  return JobOf(ticket).Now() == CopyJob::kOffered;
}

bool CopyJobs::Concerns(const JobTicket& ticket, ProcessId process) {
  const JobBoard::Known& known = BoardOf(*ticket.share).known[ticket.slot];
  return known.own == process || known.other == process;
}

void CopyJobs::GiveBack(const JobTicket& ticket) {
  JobBoard& board = BoardOf(*ticket.share);
  board.known[ticket.slot].in_use = false;
  board.in_use--;
}

void CopyJobs::Withdraw(const JobTicket& ticket) {
  CopyJob& job = JobOf(ticket);
  if (job.Claim(CopyJob::kFree)) return;
  JobBoard& board = BoardOf(*ticket.share);
  // Once a group has kept the host waiting in vain, its other jobs do not.
  for (int i = 0; i < kMaxWaitsForCopy && !board.stopped; i++) {
    if (job.Now() != CopyJob::kTaken) return;
    memory_.LetOthersRun();
  }
  board.stopped = board.refused = true;
}

}  // namespace rdmaemu::transport
