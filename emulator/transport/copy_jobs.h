// The host's side of copy jobs (emulator/abi/copy_jobs.h): which copies are worth offering to
// whom, and what became of them. Used by PayloadOwner alone.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "emulator/abi/copy_jobs.h"
#include "emulator/base/memory.h"
#include "emulator/base/time.h"
#include "emulator/transport/pieces.h"
#include "emulator/verbs/objects.h"

namespace rdmaemu::transport {

// Smaller copies cost the host less than handing them over.
inline constexpr uint64_t kMinJobBytes = 4096;
// A program that did not look for completions this long is not expected to take jobs.
inline constexpr Duration kPollingWithin = std::chrono::microseconds(100);
// A job that nobody has taken by then is the host's own.
inline constexpr Duration kOfferFor = std::chrono::microseconds(30);
// How often the host gives others a moment before it goes on without a copy that a thread began:
// one that was stopped inside it.
inline constexpr int kMaxWaitsForCopy = 20000;

// What the host knows of one group's jobs.
struct JobBoard final : TransportState {
  std::array<bool, JobPage::kSlots> in_use{};
  uint32_t offered = 0;  // as published
  uint32_t polls = 0;    // when last looked at
  Time polled_at{};      // when it was seen to have grown
  bool refused = false;  // no more jobs: the kernel lets the program not reach others, or:
  bool stopped = false;  // a thread of it stopped in a copy
};

// The least range that holds all bytes of one side of a copy.
struct JobSide {
  ProcessId process = ProcessId::kNone;
  MemoryRange bounds{};

  bool Touches(ProcessId whose, const MemoryRange& range) const {
    return process == whose && range.address < bounds.address + bounds.length &&
           bounds.address < range.address + range.length;
  }
};
// A copy that was offered and whose outcome its train's holder has not taken yet.
struct JobOffer {
  GroupShare* share = nullptr;  // to whom; nullptr: the group has gone, or the entry is free
  uint32_t slot = 0;
  Handle requester = 0, other = 0;  // the QPs of the train
  JobSide from, to;
  Time offered_at{};
  bool withdrawn = false;

  bool Touches(ProcessId process, const MemoryRange& range) const {
    return from.Touches(process, range) || to.Touches(process, range);
  }
};

// Names an offer until OutcomeOf has answered anything but kWaiting, or End.
struct JobTicket {
  uint32_t number = 0;  // 0: none
  explicit operator bool() const { return number != 0; }
};

enum class JobOutcome : uint8_t { kWaiting, kCopied, kNotCopied };

class CopyJobs {
 public:
  explicit CopyJobs(Memory& memory) : memory_(memory) {}

  // As PayloadOwner's. No ticket when the host had better copy.
  JobTicket Offer(Time now, const QueuePair& requester, const QueuePair& other, const Pieces& from,
                  const Pieces& to);
  JobOutcome OutcomeOf(Time now, JobTicket ticket);
  std::optional<Time> DeadlineOf(JobTicket ticket);
  void End(JobTicket ticket);
  // Nothing is copied for the offers after this: a copy that has begun is waited for, and counts as
  // not done.
  template <class Predicate>
  void WithdrawIf(Predicate concerns) {
    for (JobOffer& offer : offers_) {
      if (offer.share != nullptr && !offer.withdrawn && concerns(offer)) Withdraw(offer);
    }
  }
  // The group's shared memory goes.
  void Forget(const GroupShare& share);

 private:
  JobTicket OfferTo(Time now, GroupShare& share, const QueuePair& requester, const QueuePair& other,
                    const Pieces& from, const Pieces& to);
  JobOffer& Of(JobTicket ticket) { return offers_[ticket.number - 1]; }
  JobOutcome StateOf(Time now, JobOffer& offer);
  void Withdraw(JobOffer& offer);
  void Free(JobTicket ticket);

  Memory& memory_;
  std::vector<JobOffer> offers_;  // by ticket; used again
  std::vector<uint32_t> free_;    // tickets
};

}  // namespace rdmaemu::transport
