// Decides on which processor a host runs, on a machine of two processors. There, a host and two
// programs, or two hosts and a program each, share the processors, and the kernel does not know who
// waits for whom. In the best place a host is up to twice as fast as in the worst one
// (docs/performance.md). With more processors the kernel finds a free one for each thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>

#include "emulator/base/time.h"
#include "emulator/host/group_waits.h"

namespace rdmaemu::runtime {

class PlacementPolicy {
 public:
  // The number of processors of the machines concerned.
  static constexpr uint32_t kProcessors = 2;
  // With more runnable threads on the machine, only the kernel knows where time is left.
  static constexpr uint32_t kMostRunnable = 2 * kProcessors;
  static constexpr Duration kInterval = std::chrono::milliseconds(10);  // between samples
  // A group that waits less often in an interval does not matter.
  static constexpr uint32_t kActive = 100;
  // If only one group calls this often in an interval, only this group matters.
  static constexpr uint32_t kCallsOfOne = 20;
  // A group that takes copies from the host less often in an interval hardly copies.
  static constexpr uint32_t kCopies = 20;
  // A host that exchanges fewer bytes with other hosts in an interval works for its programs only.
  static constexpr uint64_t kWorksForPeers = 1024;
  // A host forwards single messages, and its program waits for each answer, if the host exchanges
  // fewer bytes in an interval, and neither direction has more than kConversationRatio times the
  // bytes of the other one.
  static constexpr uint64_t kConversation = uint64_t{1} << 20;
  static constexpr uint64_t kConversationRatio = 2;
  // A host that exchanges this many bytes in an interval makes copies, and should be wherever time
  // is left.
  static constexpr uint64_t kStream = uint64_t{4} << 20;

  bool IsSampleDue(Time now) const { return now - sampled_at_ >= kInterval; }

  // Returns the processor on which the host should run, counted from 1. Returns 0 if the kernel
  // should decide. `own` is the host's processor, and `other` the other one on which it may run, or
  // 0. `sent` and `received` are the bytes that the host has exchanged with other hosts in all.
  // `peers_poller` is what the peer's policy returns as poller(), or 0. Call this when a sample is
  // due.
  uint32_t Sample(Time now, std::span<const GroupWaits> groups, uint32_t own, uint32_t other,
                  uint64_t sent, uint64_t received, uint32_t peers_poller) {
    const bool has_slept = now - sampled_at_ >= 2 * kInterval;
    sampled_at_ = now;
    const uint64_t newly_sent = sent - std::exchange(sent_, sent);
    const uint64_t newly_received = received - std::exchange(received_, received);
    const uint64_t bytes = newly_sent + newly_received;
    exceeds_conversation_ = bytes >= kConversation;
    const Active active = TakeActive(groups, own);
    works_for_peers_ = bytes >= kWorksForPeers;
    poller_ = active.pollers == 1 && works_for_peers_ ? active.poller : 0;
    if (has_slept || bytes >= kStream) return 0;
    // A program on another processor gets a reply without a switch.
    if (active.callers == 1 && active.caller != 0 && !works_for_peers_) {
      return active.caller == own ? other : own;
    }
    // Without peers, the kernel moves whoever has to wait. With peers, the other processor is for
    // the peer's host and program, and the group that calls least loses least on this one.
    if (active.least_calls > 0) return works_for_peers_ ? active.least_caller : 0;
    // A host that waits for a copy sleeps, and only a program on its own processor wakes it up
    // without an interrupt.
    if (active.copiers == 1 && active.pollers == 0 && works_for_peers_) return active.copier;
    // A host makes the copies itself that a program does not take in time. So it leaves the
    // processor of a program that copies to a program that only polls.
    if (active.copies_here) return active.pollers > 0 ? active.poller : 0;
    // Of several programs that poll, one must share its processor with the host in any place.
    if (poller_ == 0) return 0;
    // A message goes from a program to its host, the peer's host and the peer's program. If each
    // host is beside the peer's program, each of these steps changes the processor, and each finds
    // the next process awake. For many messages it is better to change the processor only once.
    const bool is_conversation = bytes < kConversation &&
                                 newly_sent <= kConversationRatio * newly_received &&
                                 newly_received <= kConversationRatio * newly_sent;
    return is_conversation && peers_poller != 0 ? peers_poller : poller_;
  }

  // Returns true if the host worked for its peers in the last sample.
  bool works_for_peers() const { return works_for_peers_; }
  // Returns true if the last sample had more bytes than a conversation.
  bool exceeds_conversation() const { return exceeds_conversation_; }
  // The processor of the one program that polls, for the host's peers, as of the last sample. 0:
  // none, or several programs.
  uint32_t poller() const { return poller_; }

 private:
  struct Active {
    uint32_t least_calls = 0;   // of a group, since the last sample
    uint32_t least_caller = 0;  // its processor
    uint32_t callers = 0;       // groups
    uint32_t caller = 0;        // the processor of one of them
    uint32_t pollers = 0;       // groups that poll and hardly copy
    uint32_t poller = 0;        // the processor of one of them
    uint32_t copiers = 0;       // groups that copy
    uint32_t copier = 0;        // the processor of one of them
    bool copies_here = false;   // a group copies on the host's processor
  };

  Active TakeActive(std::span<const GroupWaits> groups, uint32_t own) {
    Active active;
    std::unordered_map<GroupId, GroupWaits> seen;
    for (const GroupWaits& now : groups) {
      seen.emplace(now.group, now);
      const auto before = seen_.find(now.group);
      if (before == seen_.end()) continue;
      const uint32_t calls = now.calls - before->second.calls;
      if (calls >= kCallsOfOne) {
        active.callers++;
        active.caller = now.processor;
      }
      if (calls >= kActive && (active.least_calls == 0 || calls < active.least_calls)) {
        active.least_calls = calls;
        active.least_caller = now.processor;
      }
      if (now.copies - before->second.copies >= kCopies) {
        active.copies_here |= now.processor == own;
        active.copiers++;
        active.copier = now.processor;
      } else if (now.vain_polls - before->second.vain_polls >= kActive) {
        active.pollers++;
        active.poller = now.processor;
      }
    }
    seen_ = std::move(seen);
    return active;
  }

  Time sampled_at_{};
  uint64_t sent_ = 0, received_ = 0;
  uint32_t poller_ = 0;
  bool works_for_peers_ = false;
  bool exceeds_conversation_ = false;
  std::unordered_map<GroupId, GroupWaits> seen_;  // at the last sample
};

}  // namespace rdmaemu::runtime
