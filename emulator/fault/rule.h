// A fault rule: at which point of a host it stands, which moments there it means, what happens to
// them, and how often. A plain value: parsed from a scenario (scenario.h), made by a test, or sent
// by the command line; `Rules` (rules.h) applies it.
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
  kCmEvent,     // an RDMA CM event on its way to a program; subject: "established", ...
  kCompletion,  // a completion on its way into its queue; subject: "send", "recv", ...
  kAsyncEvent,  // an asynchronous event on its way to a program; subject: "qp_fatal", ...
  kPacket,      // a packet of a queue pair; subject: its opcode, "rc_send_only"
  kLink,        // a packet or CM message on its way between two hosts
  kMemory,      // bytes of a program that the host reads or writes; subject: "read", "write"
  kTime,        // a time has come
};
inline constexpr size_t kPoints = 9;

enum class Direction : uint8_t { kSend, kReceive };

// What a host says about something that is about to happen. Fields that a point does not know are
// left empty, and no rule that asks for them matches.
struct Moment {
  Point point;
  Time now;
  std::string_view subject;
  std::optional<Direction> direction;
  std::string_view program, device;
  std::optional<NetAddress> local, remote;
  std::optional<uint16_t> service_port;  // of the side that listens
  std::optional<uint32_t> qp;            // number of the host's own queue pair
  std::optional<uint32_t> qp_order;      // the how many-th of its program, from 1
  std::optional<uint64_t> bytes;         // of payload
  std::optional<uint64_t> index;         // of a packet on its flow, from 1
  std::optional<MemoryRange> memory;
  std::optional<uint32_t> mr_order;  // the how many-th region of its program, from 1
  // At kCmEvent: it is about to be queued, where rules hold or delay it; the others stand where the
  // program gets it.
  bool is_before_queue = false;
};

struct Match {
  // At most this many places of one point.
  static constexpr size_t kMaxSubjects = 16;
  std::vector<std::string> subjects;  // one of these; empty: any
  std::string host;                   // empty: any; otherwise other hosts do not take the rule
  std::optional<Direction> direction;
  std::string program, device;  // empty: any
  std::optional<NetPrefix> local, remote;
  std::optional<uint16_t> service_port;
  std::optional<uint32_t> qp, qp_order, mr_order;
  std::optional<MemoryRange> memory;  // some of it
  std::optional<uint64_t> min_bytes, max_bytes, index;
  // A window of time since the host began, or since the rule was added to a host that ran.
  std::optional<Duration> from, until;
  std::string after;  // name of a rule: only once that one has fired
  // At kTime: so long after the host began, the rule was added, or the rule that it is after first
  // fired; and again and again.
  Duration at{};
  std::optional<Duration> repeat;
};

// Counted over the moments that match.
struct Frequency {
  uint64_t nth = 0;    // this one alone, from 1
  uint64_t every = 0;  // every so many-th
  uint64_t first = 0;  // the first so many
  double probability = 1;
  uint64_t times = 0;  // fires so often at most; 0: no limit
};

// Nothing happens: the rule counts and is traced, and `after` can name it. Those behind it decide.
struct Pass {
  friend bool operator==(Pass, Pass) = default;
};
struct Drop {
  friend bool operator==(Drop, Drop) = default;
};
// A barrier: what comes stays where it is until somebody lets go (kFaultRelease), or the rule is
// removed. A call takes effect when it is let go, or before it is held.
struct Hold {
  bool takes_effect = false;
  friend bool operator==(Hold, Hold) = default;
};
// A call is answered later; it takes effect before the wait, or after it.
struct Delay {
  Duration time;
  bool takes_effect = false;
  friend bool operator==(Delay, Delay) = default;
};
struct Duplicate {
  uint32_t copies;  // besides the original
  friend bool operator==(Duplicate, Duplicate) = default;
};
// A REQ or SIDR_REQ is answered by the host itself, and nobody who listens sees it; a REP or RTU
// becomes a REJ.
struct Reject {
  uint16_t reason;  // ib_cm_rej_reason; of a SIDR_REQ the SIDR status
  std::vector<uint8_t> private_data;
  friend bool operator==(const Reject&, const Reject&) = default;
};
// A message fails to leave, and its sender gets UNREACHABLE with this status at once.
struct Unreachable {
  int status;
  friend bool operator==(Unreachable, Unreachable) = default;
};
// A call answers with an errno: instead of taking effect, or after it has.
struct FailCall {
  int errno_value;
  bool takes_effect;
  friend bool operator==(FailCall, FailCall) = default;
};
// An event says something else: another type (RDMA_CM_EVENT_*), another status, or both.
struct ChangeEvent {
  std::optional<uint32_t> event;
  std::optional<int> status;
  friend bool operator==(const ChangeEvent&, const ChangeEvent&) = default;
};
// A completion has another status (ibv_wc_status). With an error its queue pair goes to ERR, unless
// the rule says that it keeps its state.
struct ChangeCompletion {
  uint32_t status;
  bool keeps_state;
  friend bool operator==(ChangeCompletion, ChangeCompletion) = default;
};
// A packet comes after so many that follow it on its flow, or a short time, whatever is first.
struct Reorder {
  uint64_t packets;
  friend bool operator==(Reorder, Reorder) = default;
};
// A packet is damaged on its way: its ICRC does not hold.
struct Corrupt {
  friend bool operator==(Corrupt, Corrupt) = default;
};
// Memory is as if nothing were mapped there.
struct Unmap {
  friend bool operator==(Unmap, Unmap) = default;
};
// What a link does to all that goes through it.
struct Link {
  bool partition = false;
  Duration latency{}, jitter{};   // the latter: up to so much more
  uint64_t rate_mbps = 0;         // 0: no limit
  uint64_t queue_packets = 1000;  // that wait at that rate; more are lost. As Linux's txqueuelen
  double loss = 0;
  friend bool operator==(const Link&, const Link&) = default;
};
// An asynchronous event is of another type (ibv_event_type), of the same kind of object.
struct ChangeAsync {
  uint32_t type;
  friend bool operator==(ChangeAsync, ChangeAsync) = default;
};

// What a rule does to its host, at whatever moment, when that is over. `device` is a name; empty:
// that of the moment, and where it has none, all of the host's.

// As the device's profile has it, or as rxe does it (no flush, no asynchronous event), or as
// hardware does (work flushed, IBV_EVENT_DEVICE_FATAL).
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
  std::string device;  // where it goes
  NetAddress address;
  friend bool operator==(const MoveAddress&, const MoveAddress&) = default;
};
// An entry of the P_Key table, as a subnet manager sets it.
struct SetPkey {
  std::string device;
  uint32_t index;
  uint16_t pkey;
  std::optional<Duration> return_after;
  friend bool operator==(const SetPkey&, const SetPkey&) = default;
};
// On the moment's queue pair, its queues or device; else on all that it can be of.
struct RaiseAsync {
  std::string device;
  uint32_t type;  // ibv_event_type
  friend bool operator==(const RaiseAsync&, const RaiseAsync&) = default;
};
// The host does nothing for so long, and loses no more than its sockets would.
struct PauseHost {
  Duration time;
  friend bool operator==(PauseHost, PauseHost) = default;
};
// It ends as by SIGKILL.
struct CrashHost {
  friend bool operator==(CrashHost, CrashHost) = default;
};
using Deed = std::variant<RemoveDevice, SetPort, RemoveAddress, MoveAddress, SetPkey, RaiseAsync,
                          PauseHost, CrashHost>;

using Action =
    std::variant<Pass, Drop, Hold, Delay, Duplicate, Reject, Unreachable, FailCall, ChangeEvent,
                 ChangeCompletion, ChangeAsync, Reorder, Corrupt, Link, Unmap, Deed>;

// Whether losing is all that the link does: then it fires for what it loses alone.
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

  std::string name;  // unique; what lists, traces and `after` call it
  Point point;
  Match match;
  Frequency frequency;
  Action action;
};

}  // namespace rdmaemu::fault
