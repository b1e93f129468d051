// A fault rule: its point in a host, the moments that it matches, its action, and its frequency. A
// rule is a plain value. The value is parsed from a scenario (scenario.h), built by a test, or sent
// by the command line. `Rules` (rules.h) applies it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "emulator/base/memory.h"
#include "emulator/base/net_address.h"
#include "emulator/base/net_prefix.h"
#include "emulator/base/time.h"

namespace rdmaemu::fault {

// The doors of a host.
enum class Point : uint8_t {
  kCall,        // a verbs or CM call; subject: its name ("reg_mr", "connect")
  kCmMessage,   // a CM message; subject: "req", "rep", ...
  kCmEvent,     // an RDMA CM event for a program; subject: "established", ...
  kCompletion,  // a completion before it enters its queue; subject: "send", "recv", ...
  kAsyncEvent,  // an asynchronous event for a program; subject: "qp_fatal", ...
  kPacket,      // a packet of a queue pair; subject: its opcode, "rc_send_only"
  kLink,        // a packet or CM message between two hosts
  kMemory,      // bytes of a program that the host reads or writes; subject: "read", "write"
  kTime,        // a given time
};
inline constexpr size_t kPoints = 9;

enum class Direction : uint8_t { kSend, kReceive };

// The host's description of an operation before the operation happens. A field is empty when the
// point does not have it. A rule that requires an empty field does not match.
struct Moment {
  Point point;
  Time now;
  std::string_view subject;
  std::optional<Direction> direction;
  std::string_view program, device;
  std::optional<NetAddress> local, remote;
  std::optional<uint16_t> service_port;  // of the listening side
  std::optional<uint32_t> qp;            // number of the host's own queue pair
  std::optional<uint32_t> qp_order;      // number of the QP among its program's QPs, from 1
  std::optional<uint64_t> bytes;         // of payload
  std::optional<uint64_t> index;         // of a packet on its flow, from 1
  std::optional<MemoryRange> memory;
  std::optional<uint32_t> mr_order;  // number of the region among its program's regions, from 1
  // At kCmEvent, each event has two moments. True: the host is about to queue the event. Rules hold
  // or delay an event here. False: the program fetches the event. All other rules apply here.
  bool is_before_queue = false;
};

struct Match {
  // The most places of one point.
  static constexpr size_t kMaxSubjects = 16;
  std::vector<std::string> subjects;  // one of these; empty: any
  std::string host;                   // empty: any; otherwise other hosts refuse the rule
  std::optional<Direction> direction;
  std::string program, device;  // empty: any
  std::optional<NetPrefix> local, remote;
  std::optional<uint16_t> service_port;
  std::optional<uint32_t> qp, qp_order, mr_order;
  std::optional<MemoryRange> memory;  // matches an overlap
  std::optional<uint64_t> min_bytes, max_bytes, index;
  // A window of time. The window counts from the start of the host. For a rule that is added to a
  // running host, the window counts from the addition.
  std::optional<Duration> from, until;
  std::string after;  // name of a rule; matches only after that rule has fired
  // At kTime: the time after the start of the host, the addition of the rule, or the first firing
  // of the rule in `after`. `repeat` is the period of further firings.
  Duration at{};
  std::optional<Duration> repeat;
};

// Counters over the matching moments.
struct Frequency {
  uint64_t nth = 0;     // fires at this one only, from 1
  bool onward = false;  // fires at the nth one and at all later ones
  uint64_t every = 0;   // fires at every n-th
  uint64_t first = 0;   // fires at the first n
  double probability = 1;
  uint64_t times = 0;  // fires at most this many times; 0: no limit
};

// No action. The rule counts and is traced, and another rule's `after` can name it. The rules
// behind it in the list decide.
struct Pass {
  friend bool operator==(Pass, Pass) = default;
};
struct Drop {
  friend bool operator==(Drop, Drop) = default;
};
// A barrier. Matching operations wait until a release (kFaultRelease) or the removal of the rule. A
// call takes effect at its release. With `takes_effect` it takes effect before the host holds it.
struct Hold {
  bool takes_effect = false;
  friend bool operator==(Hold, Hold) = default;
};
// Delays an operation. For a call, delays the reply. The call takes effect before the delay
// (`takes_effect`) or after it.
struct Delay {
  Duration time;
  bool takes_effect = false;
  friend bool operator==(Delay, Delay) = default;
};
struct Duplicate {
  uint32_t copies;  // in addition to the original
  friend bool operator==(Duplicate, Duplicate) = default;
};
// The host answers a REQ or SIDR_REQ itself, and no listener gets the message. A REP or RTU becomes
// a REJ.
struct Reject {
  uint16_t reason;  // ib_cm_rej_reason; for a SIDR_REQ the SIDR status
  std::vector<uint8_t> private_data;
  friend bool operator==(const Reject&, const Reject&) = default;
};
// The send of a message fails. The sender gets UNREACHABLE with this status at once.
struct Unreachable {
  int status;
  friend bool operator==(Unreachable, Unreachable) = default;
};
// The call returns an errno. With `takes_effect` the call takes effect first, otherwise not.
struct FailCall {
  int errno_value;
  bool takes_effect;
  friend bool operator==(FailCall, FailCall) = default;
};
// Changes an event's type (RDMA_CM_EVENT_*), its status, or both. A new type also replaces the
// private data, unless `private_data` is empty.
struct ChangeEvent {
  std::optional<uint32_t> event;
  std::optional<int> status;
  std::vector<uint8_t> private_data = {};
  friend bool operator==(const ChangeEvent&, const ChangeEvent&) = default;
};
// Changes a completion's status (ibv_wc_status). An error moves the queue pair to ERR, unless
// `keeps_state` is set.
struct ChangeCompletion {
  uint32_t status;
  bool keeps_state;
  friend bool operator==(ChangeCompletion, ChangeCompletion) = default;
};
// Delays a packet until this many later packets of its flow have overtaken it. A short time limit
// also ends the delay.
struct Reorder {
  uint64_t packets;
  friend bool operator==(Reorder, Reorder) = default;
};
// Damages a packet, so that its ICRC is wrong.
struct Corrupt {
  friend bool operator==(Corrupt, Corrupt) = default;
};
// Memory accesses fail as if the memory were unmapped.
struct Unmap {
  friend bool operator==(Unmap, Unmap) = default;
};
// The properties of a link, for all packets and messages on it.
struct Link {
  bool partition = false;
  Duration latency{}, jitter{};  // jitter: a random addition of at most this much
  uint64_t rate_mbps = 0;        // 0: no limit
  uint64_t queue_packets =
      1000;  // packets that wait at that rate; more are lost (Linux's txqueuelen)
  double loss = 0;
  friend bool operator==(const Link&, const Link&) = default;
};
// Changes the type of an asynchronous event (ibv_event_type), for the same kind of object.
struct ChangeAsync {
  uint32_t type;
  friend bool operator==(ChangeAsync, ChangeAsync) = default;
};

// Actions on the host. They run after the end of the moment. `device` is a name. When it is empty,
// the action applies to the moment's device, or to all devices of the host when the moment has
// none.

// The ways to remove a device. kProfile: as the device's profile says. kRxe: no flush and no
// asynchronous event. kHardware: flush the work and raise IBV_EVENT_DEVICE_FATAL.
struct RemoveDevice {
  enum class How : uint8_t { kProfile, kRxe, kHardware };
  std::string device;
  How how = How::kProfile;
  std::optional<Duration> return_after;
  friend bool operator==(const RemoveDevice&, const RemoveDevice&) = default;
};
struct SetPort {
  std::string device;
  bool up;
  std::optional<Duration> return_after;
  friend bool operator==(const SetPort&, const SetPort&) = default;
};
struct RemoveAddress {
  NetAddress address;
  std::optional<Duration> return_after;
  friend bool operator==(const RemoveAddress&, const RemoveAddress&) = default;
};
struct MoveAddress {
  std::string device;  // the new device of the address
  NetAddress address;
  friend bool operator==(const MoveAddress&, const MoveAddress&) = default;
};
// Sets an entry of the P_Key table, as a subnet manager does.
struct SetPkey {
  std::string device;
  uint32_t index;
  uint16_t pkey;
  std::optional<Duration> return_after;
  friend bool operator==(const SetPkey&, const SetPkey&) = default;
};
// Raises an event on the moment's queue pair, its queues or its device. When the moment has none of
// these, raises the event on all objects that can have it.
struct RaiseAsync {
  std::string device;
  uint32_t type;  // ibv_event_type
  friend bool operator==(const RaiseAsync&, const RaiseAsync&) = default;
};
// The host does nothing for this time. The host loses only datagrams that its sockets would lose.
struct PauseHost {
  Duration time;
  friend bool operator==(PauseHost, PauseHost) = default;
};
// Ends the host as SIGKILL does.
struct CrashHost {
  friend bool operator==(CrashHost, CrashHost) = default;
};
// Ends programs as SIGKILL does. kSelf: the program of the moment. kPeer: the other programs on
// this host that own the remote end of the moment's queue pair or connection. If the moment has no
// connection, kPeer means the remote ends of all connections of the moment's program.
struct EndProgram {
  enum class Which : uint8_t { kSelf, kPeer };
  Which which = Which::kSelf;
  friend bool operator==(EndProgram, EndProgram) = default;
};
using Deed = std::variant<RemoveDevice, SetPort, RemoveAddress, MoveAddress, SetPkey, RaiseAsync,
                          PauseHost, CrashHost, EndProgram>;

using Action =
    std::variant<Pass, Drop, Hold, Delay, Duplicate, Reject, Unreachable, FailCall, ChangeEvent,
                 ChangeCompletion, ChangeAsync, Reorder, Corrupt, Link, Unmap, Deed>;

// Returns true when loss is the only property of the link. The rule then fires only for lost
// packets.
inline bool LosesAlone(const Action& action) {
  const auto* const link = std::get_if<Link>(&action);
  return link != nullptr && link->loss > 0 && !link->partition && link->rate_mbps == 0 &&
         link->latency == Duration::zero() && link->jitter == Duration::zero();
}

struct Rule {
  bool IsAt(std::string_view subject) const {
    const std::vector<std::string>& wanted = match.subjects;
    return wanted.empty() || std::ranges::find(wanted, subject) != wanted.end();
  }

  std::string name;  // unique; the name in lists, traces and `after`
  Point point;
  Match match;
  Frequency frequency;
  Action action;
};

}  // namespace rdmaemu::fault
