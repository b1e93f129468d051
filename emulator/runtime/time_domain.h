// One time for all hosts of a registry whose clock is virtual, manual or program. Time jumps only
// when all hosts are idle and no datagram is in flight between them. Where time jumps by itself, it
// also waits for applications (Host::AwaitsApplication).
//
// In program time (Kind::kProgram) the hosts' programs are members, too. Time does not advance
// until all members are idle. The last action of one member (a doorbell, an event) may still be in
// flight to an idle member. A member that did something therefore begins a new round. Time jumps
// when all members have looked for work in the same round and found none. A program that a signal
// has stopped can do nothing, so time does not wait for the program. Its deadlines count again when
// it continues.
//
// The hosts share a small file: a page with the time and one slot per host, which they change in
// turns (shared_page.h). An idle host writes to its slot its next deadline and the counts
// of its datagrams to and from other hosts. The last host to become idle advances the time. That
// host then wakes up the hosts that have work, by a datagram to their socket NAME.wake. A host
// holds a lock on its slot while it lives, so that the others detect its death. The hosts read and
// write the file and never map it. A truncated file is therefore an error and not a signal.
//
// While a host is busy, time does not jump. The host therefore reads the file only when it becomes
// idle and when it wakes up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "emulator/abi/calls.h"
#include "emulator/base/net_address.h"
#include "emulator/runtime/clock.h"
#include "emulator/runtime/guest_fd.h"
#include "emulator/runtime/registry.h"

namespace rdmaemu::runtime {

struct DomainPage;

class TimeDomain final : public Clock {
 public:
  enum class Kind : uint8_t { kVirtual, kManual, kProgram };
  static constexpr size_t kMaxHosts = 64;
  static constexpr size_t kMaxAddressesPerHost = 64;
  // A datagram between two hosts of one machine is in the receiver's socket after this time. If the
  // receiver then finds no datagram, the datagram is lost. On a busy machine a thread of the kernel
  // (ksoftirqd) delivers, and this thread may have to wait for a processor. 10 ms were too short in
  // one of 500 runs.
  static constexpr Duration kTransit = std::chrono::milliseconds(200);
  // A host that waits for another host sleeps this long, because the other host may have died.
  static constexpr Duration kLookAgain = std::chrono::milliseconds(100);
  // kMaxMove is the largest single move or jump of time. kMaxTime is the latest time.
  static constexpr Duration kMaxMove = std::chrono::hours(24 * 366);
  static constexpr Duration kMaxTime = std::chrono::hours(24 * 366 * 50);

  // Joins the domain. `addresses` are the wire addresses of the host. The first host of a domain
  // starts its time. Virtual time starts at the real time, manual and program time start at 0.
  static OrMessage<std::unique_ptr<TimeDomain>> Join(const Registry& registry, Kind kind,
                                                     const std::string& host,
                                                     const std::vector<NetAddress>& addresses);
  // Joins a program's process to program time. The process stays a member while it lives. After
  // execve(2) its new program joins again as the same member.
  static OrMessage<std::unique_ptr<TimeDomain>> JoinProgram(const Registry& registry);
  ~TimeDomain() override;
  TimeDomain(const TimeDomain&) = delete;
  TimeDomain& operator=(const TimeDomain&) = delete;

  Time At(Time real) const override;
  Duration RealTime(Duration length) const override;
  // The sum of all jumps of this domain's time that this member has read.
  Duration jumped() const { return offset_; }

  // The state of a host that has no work and has sent all datagrams.
  struct Idle {
    std::optional<Time> next_deadline;
    bool awaits_application;
    bool did_work = false;  // the host did work since it was last idle; for program time only
  };
  struct Answer {
    bool is_due;          // time has reached the host's deadline: do not sleep
    Duration look_again;  // sleep no longer than this, in real time
  };
  // Marks the host idle. Advances the time if all other hosts are idle.
  Answer BecomeIdle(Time real, const Idle& idle);
  // Returns a message for the user, once, after BecomeIdle has found that another process has
  // damaged the file. Time then never jumps.
  std::optional<std::string> TakeDamage();
  // Marks the host busy. Call this before the host reads the clock again.
  void BecomeBusy();
  // Program time: reads the time. It may have advanced while a signal had stopped this busy
  // process. Returns true if it has.
  bool LookAgain();
  // The timer of alarm(2), which a process keeps over execve(2).
  struct Alarm {
    std::optional<Time> due;  // nullopt: disarmed
    Duration interval{};      // zero: expires once
  };
  // Program time: stores the alarm for the program that this process may execute.
  void KeepAlarm(const Alarm& alarm);
  // Returns the alarm that the process had when it executed this program.
  const Alarm& kept_alarm() const { return kept_alarm_; }
  // Program time: begins the member's look for work, whose result BecomeIdle reports. The look may
  // miss actions that others start after this call. BecomeBusy implies BeginLook.
  void BeginLook();

  // The values of kClocks when the domain's time is 0, in program time. Each is a whole second.
  static constexpr std::array<clockid_t, 4> kClocks = {CLOCK_MONOTONIC, CLOCK_REALTIME,
                                                       CLOCK_BOOTTIME, CLOCK_TAI};
  const std::array<Duration, kClocks.size()>& clock_bases() const { return clock_bases_; }

  // A process that is not a living member of program time.
  struct Stranger {
    pid_t process;
    bool has_ended;  // the process is a zombie or does not exist
  };
  // Returns those of `processes` that are not living members.
  std::vector<Stranger> Strangers(const std::vector<pid_t>& processes) const;

  // Readable when time has advanced, or when another host requests a new look.
  int wake_fd() const { return wake_fd_.get(); }
  void TakeWake();

  // Count unicast datagrams to or from hosts of the domain. Other datagrams do not count.
  void NoteSent(const NetAddress& destination, size_t datagrams);
  void NoteReceived(const NetAddress& source, size_t datagrams);
  void AddAddress(const NetAddress& address);
  void RemoveAddress(const NetAddress& address);

  // Advances manual time by `by` when all hosts are idle. Fails with EOPNOTSUPP for other kinds,
  // and with EINVAL unless 0 < `by` <= kMaxMove.
  Status Advance(Duration by);
  // Advances manual time to the last deadline, or until a host waits for an application. Advances
  // by at most kMaxMove.
  Status RunUntilIdle();
  // Returns true while manual time has not reached the time that was last requested.
  bool IsMoving();

 private:
  TimeDomain(const Registry& registry, Kind kind, std::string host, pid_t program);
  OrMessage<void> Open();
  // Joins again if the program has closed the descriptors.
  void OpenAgainIfClosed();
  OrMessage<void> ListenForWakes();
  bool FileHasItsName() const;
  // Returns false if another process has removed the file meanwhile.
  OrMessage<bool> TakeSlot();
  // Sets slot_ unless it is set. Returns false if no slot is free.
  bool FindSlot(const DomainPage& page);
  void TakeSlotIn(DomainPage& page) const;
  std::string FilePath() const;
  // Returns whether a member lives, and records whether a signal has stopped it.
  bool LooksAlive(DomainPage& page, size_t slot) const;
  bool Read(DomainPage& page) const;
  // Changes the page as SharedPage::Update. Does nothing and returns false if the page is damaged,
  // or if this process has no slot.
  template <typename Edit, typename Stored = decltype([] {})>
  bool Change(Edit edit, Stored stored = {});
  void ReapDead(DomainPage& page) const;
  // Program time: returns true if every member has looked in this round. Else adds the others to
  // `to_wake`.
  bool AllHaveLooked(const DomainPage& page, std::vector<std::string>& to_wake) const;
  Answer Decide(DomainPage& page, Time real, std::vector<std::string>& to_wake) const;
  Answer Move(DomainPage& page, Time now, Time next, bool awaits,
              std::vector<std::string>& to_wake) const;
  // Adds the other hosts that have a deadline at or before `deadline`.
  void WakeBefore(const DomainPage& page, Time deadline, std::vector<std::string>& to_wake) const;
  // Returns true if every sent datagram was received or is lost.
  bool NothingIsOnItsWay(DomainPage& page, Time real, std::vector<std::string>& to_wake,
                         Duration& look_again) const;
  Time TimeOf(const DomainPage& page, Time real) const;
  void Wake(const std::vector<std::string>& hosts) const;
  void PublishAddresses();
  void WriteAddresses(DomainPage& page) const;
  void ReadAddresses(const DomainPage& page);
  bool Knows(const NetAddress& address) const;
  Status SetTarget(Duration by, bool until_idle);

  Registry registry_;
  Kind kind_;
  std::string host_;
  pid_t program_;  // 0: a host
  GuestFd file_, wake_fd_;
  size_t slot_ = kMaxHosts;  // none
  bool is_idle_ = false;
  bool is_damaged_ = false, is_damage_told_ = false;
  std::array<Duration, kClocks.size()> clock_bases_{};
  Duration offset_{};  // added to real time; for manual and program time, the time itself
  uint64_t generation_ = 0;
  uint64_t moves_ = 0;       // calls of SetTarget
  uint64_t look_round_ = 0;  // the round in which the member's current look began
  Alarm kept_alarm_;
  uint64_t sent_ = 0, received_ = 0;
  std::vector<NetAddress> own_addresses_;
  std::vector<NetAddress> known_;  // addresses of all hosts of the domain, sorted
};

}  // namespace rdmaemu::runtime
