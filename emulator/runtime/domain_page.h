// The layout of the file that the members of a TimeDomain share. After the parts of shared_page.h,
// the file has one list of addresses and one lock per slot.
#pragma once

#include <array>
#include <cstdint>

#include "emulator/base/net_address.h"
#include "emulator/runtime/shared_page.h"
#include "emulator/runtime/time_domain.h"

namespace rdmaemu::runtime {

inline constexpr int64_t kNever = INT64_MAX;
inline constexpr off_t kSlotLocks = PageTurn::kFirstFreeLock;  // one byte per slot
inline constexpr off_t kAddressesAt = PageTurn::kFirstFreeByte;

inline Time FromNs(int64_t ns) { return Time(Duration(ns)); }
inline int64_t ToNs(Time time) { return time.time_since_epoch().count(); }

struct DomainSlot {
  uint32_t is_used;
  uint32_t is_idle;
  int64_t idle_since_ns;     // real
  int64_t next_deadline_ns;  // kNever: none
  uint32_t awaits_application;
  uint32_t addresses;
  uint64_t sent, received;
  int32_t program;                          // pid of a program; 0: a host
  uint64_t begun;                           // start of that process, in the kernel's ticks
  uint64_t looked_in;                       // the round of its last look without work
  uint64_t moves;                           // manual: how often it has moved the target
  uint32_t is_stopped;                      // a program that a signal has stopped
  int64_t alarm_ns, alarm_interval_ns;      // of a program; 0: none
  char host[Registry::kMaxNameBytes + 16];  // terminated

  bool IsFree() const { return is_used == 0; }
  // A stopped program can do nothing, so time does not wait for it.
  bool IsAwaited() const { return is_used != 0 && is_stopped == 0; }
};

struct AddressList {
  std::array<NetAddress, TimeDomain::kMaxAddressesPerHost> addresses;
};

// IsValid checks the contents of this page, although only this user can write the file.
struct DomainPage {
  uint64_t magic;
  int64_t offset_ns;
  int64_t target_ns;    // manual: where time moves to
  uint64_t until_idle;  // stop when no deadline is left
  uint64_t generation;  // changes when addresses change
  int64_t balance;      // sent less received when nothing was in flight
  int64_t mismatch;     // a different balance that a host saw
  int64_t mismatch_ns;  // real time at which it was first seen; 0: none
  int64_t asked_ns;     // real time at which all hosts were asked to look again; 0: not yet
  uint64_t round;       // program time: changes when a member does something
  int64_t clock_bases_ns[TimeDomain::kClocks.size()];
  DomainSlot slots[TimeDomain::kMaxHosts];
};
static_assert(kAddressesAt + TimeDomain::kMaxHosts * sizeof(AddressList) < PageTurn::kLocksAt);
static_assert(PageTurn::kAreas > TimeDomain::kMaxHosts);

// Returns a page without members, for a domain that begins.
DomainPage BeginDomain();
bool IsValid(const DomainPage& page);

void Put(const TimeDomain::Alarm& alarm, DomainSlot& slot);
// Returns the next alarm. Returns none for an alarm that has expired, or that no time can reach.
TimeDomain::Alarm NextAlarm(const DomainSlot& slot, int64_t now_ns);

}  // namespace rdmaemu::runtime
