// The host's side of copy jobs (emulator/abi/copy_jobs.h). The host decides which copies to offer
// to which program, and tracks their outcome. Only PayloadOwner uses it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "emulator/abi/copy_jobs.h"
#include "emulator/base/memory.h"
#include "emulator/base/time.h"
#include "emulator/base/unfilled_form.h"
#include "emulator/transport/pieces.h"
#include "emulator/verbs/objects.h"

namespace rdmaemu::transport {

// The smallest copy that the host offers, in bytes. The host makes a smaller copy more cheaply
// itself.
inline constexpr uint64_t kMinJobBytes = 4096;
// The host makes no offers to a program that has not polled for this long.
inline constexpr Duration kPollingWithin = std::chrono::microseconds(100);
// The host waits this long for a thread that takes an offer, and longer for a large copy: about as
// long as it would need to make the copy. So a thread that fetches a completion event, or posts its
// next requests, still makes the copy.
inline constexpr Duration kShortestOffer = std::chrono::microseconds(30);
inline constexpr Duration kOfferForEachMiB = std::chrono::microseconds(256);
// The host makes a copy of so many bytes itself when no thread takes the offer within this time,
// and no thread of the program ended another copy within this time. (A thread takes offers of at
// most 1 MiB at once. The next offers wait meanwhile.)
constexpr Duration OfferFor(uint64_t bytes) {
  return kShortestOffer + kOfferForEachMiB * bytes / (1 << 20);
}
// The same limit while a thread of the program makes other copies.
inline constexpr Duration kOfferWhileBusyFor = std::chrono::milliseconds(1);
// How long a copy awaits the host that may name its destination. Afterwards this host makes it.
inline constexpr Duration kAwaitDestinationFor = std::chrono::microseconds(200);
// A thread that has had a copy for this long has probably been stopped. The host looks whether it
// was, and again after the same time.
inline constexpr Duration kLookAfter = std::chrono::milliseconds(10);

// The host's state of one group's jobs.
struct JobBoard final : TransportState {
  std::array<bool, JobPage::kSlots> in_use{};
  uint32_t offered = 0;  // as published in JobPage
  uint32_t polls = 0;    // the group's polls at the last check
  Time polled_at{};      // when `polls` last grew
  Time copied_at{};      // when the host last saw that a thread had ended a copy
  bool refused = false;  // no more jobs: the kernel denies the program access, or `stuck` is set
  bool stuck = false;    // a thread of the program did not end its copy
  bool refused_directly = false;  // no more copies to programs of other hosts
};

// The smallest range that contains all bytes of one side of a copy.
struct JobSide {
  ProcessId process = ProcessId::kNone;
  MemoryRange bounds{};

  bool Touches(ProcessId whose, const MemoryRange& range) const {
    return process == whose && range.address < bounds.address + bounds.length &&
           bounds.address < range.address + range.length;
  }
};
JobSide SideOf(const Pieces& pieces);
// An offered copy. The owner of its train has not read the outcome yet.
struct JobOffer {
  GroupShare* share = nullptr;  // the receiver; nullptr: the group has ended, or the entry is free
  uint32_t slot = 0;
  Handle requester = 0, other = 0;  // the QPs of the train
  JobSide from, to;
  uint64_t length = 0;  // bytes
  Time offered_at{};
  Time looked_at{};  // when the host last looked whether the copy's thread was stopped
  bool withdrawn = false;
  bool is_to_host = false;          // FormFills takes it back
  bool awaits_destination = false;  // when the host last looked

  bool Touches(ProcessId process, const MemoryRange& range) const {
    return from.Touches(process, range) || to.Touches(process, range);
  }
};

// Identifies an offer. Valid until End, or until OutcomeOf returns another result than kWaiting.
struct JobTicket {
  uint32_t number = 0;  // 0: none
  explicit operator bool() const { return number != 0; }
};

enum class JobOutcome : uint8_t { kWaiting, kCopied, kNotCopied };

class CopyJobs {
 public:
  explicit CopyJobs(Memory& memory) : memory_(memory) {}

  // Acts as PayloadOwner::Offer. Returns no ticket when the host can make the copy more cheaply.
  JobTicket Offer(Time now, const QueuePair& requester, const QueuePair& other, const Pieces& from,
                  const Pieces& to, JobTicket behind);
  // Returns true if OfferToHost would return a ticket.
  bool TakesHostCopy(Time now, const QueuePair& qp, const Pieces& from);
  // Offers a copy from a program's memory to `form` in this host's memory, which must stay mapped
  // while the offer exists (End). Offers it to the QP's own program. With `may_be_direct` the
  // form's receiver may first name a destination in the memory of its program.
  JobTicket OfferToHost(Time now, const QueuePair& qp, const Pieces& from, UnfilledForm& form,
                        bool may_be_direct);
  JobOutcome OutcomeOf(Time now, JobTicket ticket);
  std::optional<Time> DeadlineOf(JobTicket ticket);
  // Returns true if no thread makes the copy now, or will.
  bool HasEnded(JobTicket ticket);
  // Withdraws the offer, and waits for a copy that has begun (copy_waits.h). Returns false if a
  // thread may still write. End also ends the ticket.
  bool Stop(JobTicket ticket);
  bool End(JobTicket ticket);
  // Returns true while a thread may write.
  bool IsCopying(JobTicket ticket);
  // Takes the job from the thread that has it, if the thread was stopped before its copy. Returns
  // false if it did not. Call this only while IsCopying.
  bool TakeFromStopped(JobTicket ticket) { return TakeFromStopped(Of(ticket)); }
  // Returns true if the copy goes to a program of another host.
  bool IsDirect(JobTicket ticket);
  // Returns true when no thread has taken the offer within its time limit.
  bool IsOverdue(Time now, JobTicket ticket);
  // Ends the offer unless a thread has taken it. Returns true if the offer has ended.
  bool TakeBack(JobTicket ticket);
  // Withdraws the matching offers. Waits for copies that have begun, and counts them as not done.
  template <class Predicate>
  void WithdrawIf(Predicate concerns) {
    for (JobOffer& offer : offers_) {
      if (offer.share != nullptr && !offer.withdrawn && concerns(offer)) Withdraw(offer);
    }
  }
  // Withdraws the group's offers before its shared memory is freed.
  void Forget(const GroupShare& share);

 private:
  JobTicket OfferTo(Time now, GroupShare& share, const QueuePair& requester, const QueuePair& other,
                    const Pieces& from, const Pieces& to);
  // Returns the slot of the group's next offer. Nothing: the group gets no offer now.
  std::optional<uint32_t> FreeSlot(Time now, GroupShare& share);
  // The two sides of a copy, as the program sees them.
  struct Copied {
    uint32_t pid;
    bool push;
    std::span<const MemoryRange> own, other;
    std::byte* mark_at = nullptr;
    std::byte mark{};
  };
  JobTicket Publish(const JobOffer& offer, const Copied& copied, UnfilledForm* refers = nullptr);
  JobOffer& Of(JobTicket ticket) { return offers_[ticket.number - 1]; }
  JobOutcome StateOf(Time now, JobOffer& offer);
  // Returns when the host makes the copy of an offer that no thread has taken.
  static Time EndOf(const JobOffer& offer);
  // Returns when the host looks at the thread that has taken an offer.
  static Time LookAt(const JobOffer& offer);
  bool TakeFromStopped(JobOffer& offer);
  // Returns false if a thread may still copy.
  bool Withdraw(JobOffer& offer);
  void Free(JobTicket ticket);

  Memory& memory_;
  std::vector<JobOffer> offers_;  // by ticket; reused
  std::vector<uint32_t> free_;    // tickets
};

}  // namespace rdmaemu::transport
