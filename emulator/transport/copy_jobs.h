// The host's side of copy jobs (emulator/verbs/copy_jobs.h): which copies are worth offering to
// whom, and what became of them.
#pragma once

#include <array>
#include <cstdint>

#include "emulator/base/memory.h"
#include "emulator/base/time.h"
#include "emulator/transport/pieces.h"
#include "emulator/verbs/copy_jobs.h"
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
  struct Known {
    bool in_use = false;
    // Whose memory it moves. The first is the group's process when the job was offered: by the time
    // the job has to end the group may have several, or none.
    ProcessId own = ProcessId::kNone, other = ProcessId::kNone;
    Time offered_at{};
  };
  std::array<Known, JobPage::kSlots> known;
  uint32_t offered = 0;  // as published
  uint32_t polls = 0;    // when last looked at
  Time polled_at{};      // when it was seen to have grown
  bool refused = false;  // no more jobs: the kernel lets the program not reach others, or:
  bool stopped = false;  // a thread of it stopped in a copy
  uint32_t in_use = 0;
};

// A job that was offered; none when `share` is nullptr.
struct JobTicket {
  GroupShare* share = nullptr;
  uint32_t slot = 0;
  explicit operator bool() const { return share != nullptr; }
};

enum class JobOutcome : uint8_t { kWaiting, kCopied, kNotCopied };

class CopyJobs {
 public:
  explicit CopyJobs(Memory& memory) : memory_(memory) {}

  // Offers to copy `from` to `to` to the group of one of the two, `first` before `second`. No
  // ticket when the host had better copy.
  JobTicket Offer(Time now, GroupShare& first, GroupShare& second, const Pieces& from,
                  const Pieces& to);
  // What became of it. An offer that nobody takes ends, once `now` is late enough.
  JobOutcome Look(Time now, const JobTicket& ticket);
  // When Look should be asked again at the latest.
  static Time LookAgainAt(const JobTicket& ticket);
  static bool IsOffered(const JobTicket& ticket);
  // The job reads or writes the process's memory.
  static bool Concerns(const JobTicket& ticket, ProcessId process);
  // The ticket's holder has seen the outcome, or wants it no more (after Withdraw).
  void GiveBack(const JobTicket& ticket);
  // Nothing is copied for the ticket after this: what was begun is waited for.
  void Withdraw(const JobTicket& ticket);

 private:
  JobTicket OfferTo(Time now, GroupShare& share, const Pieces& from, const Pieces& to);

  Memory& memory_;
};

}  // namespace rdmaemu::transport
