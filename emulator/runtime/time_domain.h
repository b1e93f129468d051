// One time for all hosts of a registry whose clock is virtual, or manual. Time jumps only when all
// of them are idle, no datagram is on its way between them and, where it jumps by itself, no
// application is awaited (Host::AwaitsApplication).
//
// In program time (Kind::kProgram) the hosts' programs are members, too, and time stands until all
// members are idle. What one member did last may be on its way to another one that is idle already
// (a doorbell, an event). So each member that did something begins a new round, and time jumps when
// all have looked and found nothing in the same round.
//
// The hosts meet in a small file: a page with the time and a slot a host, changed under a lock of
// the file (F_OFD_SETLK). A host that is idle says so in its slot, with its next deadline and how
// many datagrams it has exchanged with the others; the last one to become idle moves time, and
// wakes those that have something to do by a datagram to their socket NAME.wake. A host holds a
// lock on its slot for as long as it lives, so that the others notice when it has died. The file is
// read and written, never mapped: one that is cut short is an error and not a signal.
//
// While a host is busy time stands for it as it was when it began: nobody jumps. So it reads the
// file only when it becomes idle and when it wakes.
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
#include "emulator/runtime/registry.h"
#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::runtime {

struct DomainPage;

class TimeDomain final : public Clock {
 public:
  enum class Kind : uint8_t { kVirtual, kManual, kProgram };
  static constexpr size_t kMaxHosts = 64;
  static constexpr size_t kMaxAddressesPerHost = 64;
  // A datagram between two hosts of a machine is in the receiver's socket after this time. Who has
  // then looked and found none never will.
  static constexpr Duration kTransit = std::chrono::milliseconds(10);
  // How long who waits for another host sleeps: it may have died.
  static constexpr Duration kLookAgain = std::chrono::milliseconds(100);
  // Time is told to move, or jumps, so far at once, and never beyond the second.
  static constexpr Duration kMaxMove = std::chrono::hours(24 * 366);
  static constexpr Duration kMaxTime = std::chrono::hours(24 * 366 * 50);

  // The addresses are those that the others reach the host at. The first host of a domain begins
  // its time: virtual at the real one, manual at 0.
  static OrMessage<std::unique_ptr<TimeDomain>> Join(const Registry& registry, Kind kind,
                                                     const std::string& host,
                                                     const std::vector<NetAddress>& addresses);
  // A program's process, of program time. It is a member as long as the process lives, also where
  // it executes another program, whose libraries join once more.
  static OrMessage<std::unique_ptr<TimeDomain>> JoinProgram(const Registry& registry);
  ~TimeDomain() override;
  TimeDomain(const TimeDomain&) = delete;
  TimeDomain& operator=(const TimeDomain&) = delete;

  Time At(Time real) const override;
  Duration RealTime(Duration length) const override;

  // The host finds nothing to do, and all it has sent has left. Moves time when it was the last.
  struct Idle {
    std::optional<Time> next_deadline;
    bool awaits_application;
    bool did_work = false;  // since it was idle before; of program time alone
  };
  struct Answer {
    bool is_due;          // time has reached the deadline: do not sleep
    Duration look_again;  // sleep no longer than this, in real time
  };
  Answer BecomeIdle(Time real, const Idle& idle);
  // It goes on, for whatever reason. To be called before it looks at the clock again.
  void BecomeBusy();
  // Program time: the member begins to look whether it has something to do. BecomeIdle says what it
  // found; what others have done since this call may not have been seen. BecomeBusy implies it.
  void BeginLook();

  // What each of kClocks shows in program time when the domain's time is 0: a whole second.
  static constexpr std::array<clockid_t, 4> kClocks = {CLOCK_MONOTONIC, CLOCK_REALTIME,
                                                       CLOCK_BOOTTIME, CLOCK_TAI};
  const std::array<Duration, kClocks.size()>& clock_bases() const { return clock_bases_; }

  // Those of the processes that are no living members, of program time.
  struct Stranger {
    pid_t process;
    bool has_ended;  // nobody has waited for it yet
  };
  std::vector<Stranger> Strangers(const std::vector<pid_t>& processes) const;

  // Readable when time has moved, or somebody asks for another look.
  int wake_fd() const { return wake_fd_.get(); }
  void TakeWake();

  // Unicast datagrams to or from hosts of the domain; others do not count.
  void NoteSent(const NetAddress& destination, size_t datagrams);
  void NoteReceived(const NetAddress& source, size_t datagrams);
  void AddAddress(const NetAddress& address);
  void RemoveAddress(const NetAddress& address);

  // Manual time, which moves when all hosts are idle. EOPNOTSUPP of virtual time; EINVAL: not
  // positive or above kMaxMove.
  Status Advance(Duration by);
  // To the last deadline, or until an application is awaited, at most kMaxMove.
  Status RunUntilIdle();
  // It was told to move and has not arrived.
  bool IsMoving();

 private:
  TimeDomain(const Registry& registry, Kind kind, std::string host, pid_t program);
  OrMessage<void> Open();
  OrMessage<void> ListenForWakes();
  // False: another process has removed the file meanwhile.
  bool FileHasItsName() const;
  OrMessage<void> TakeSlot();
  void TakeSlotIn(DomainPage& page) const;
  std::string FilePath() const;
  bool SlotIsAlive(const DomainPage& page, size_t slot) const;
  bool Read(DomainPage& page) const;
  bool Write(const DomainPage& page) const;
  void ReapDead(DomainPage& page) const;
  // Program time: every member has looked in this round. Wakes those that have not.
  bool AllHaveLooked(const DomainPage& page, std::vector<std::string>& to_wake) const;
  Answer Decide(DomainPage& page, Time real, std::vector<std::string>& to_wake) const;
  Answer Move(DomainPage& page, Time now, Time next, bool awaits,
              std::vector<std::string>& to_wake) const;
  // Adds the other hosts that have a deadline until then.
  void WakeBefore(const DomainPage& page, Time deadline, std::vector<std::string>& to_wake) const;
  // True: all that was sent has come, or never will.
  bool NothingIsOnItsWay(DomainPage& page, Time real, std::vector<std::string>& to_wake,
                         Duration& look_again) const;
  Time TimeOf(const DomainPage& page, Time real) const;
  void Wake(const std::vector<std::string>& hosts) const;
  void WriteAddresses(DomainPage& page) const;
  void ReadAddresses(const DomainPage& page);
  bool Knows(const NetAddress& address) const;
  Status SetTarget(Duration by, bool until_idle);

  Registry registry_;
  Kind kind_;
  std::string host_;
  pid_t program_;  // 0: a host
  UniqueFd file_, wake_fd_;
  size_t slot_ = kMaxHosts;  // none
  bool is_idle_ = false;
  std::array<Duration, kClocks.size()> clock_bases_{};
  Duration offset_{};  // what is added to real time; the time itself where it is manual
  uint64_t generation_ = 0;
  uint64_t look_round_ = 0;  // in which the member's look began
  uint64_t sent_ = 0, received_ = 0;
  std::vector<NetAddress> own_addresses_;
  std::vector<NetAddress> known_;  // of all hosts of the domain, sorted
};

}  // namespace rdmaemu::runtime
