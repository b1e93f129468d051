#include "emulator/fault/grammar.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "emulator/abi/call_table.h"
#include "emulator/base/async_events.h"
#include "emulator/base/call_spelling.h"

namespace rdmaemu::fault {
namespace {

constexpr std::array<const char*, kPoints> kPointNames = {
    "call", "cm", "event", "wc", "async", "packet", "link", "memory", "time"};

constexpr PointSet kEverywhere = PointSet::All();
constexpr PointSet kOfPrograms = {Point::kCall,       Point::kCmEvent, Point::kCompletion,
                                  Point::kAsyncEvent, Point::kPacket,  Point::kMemory};
constexpr PointSet kOfAddresses = {Point::kCmMessage, Point::kPacket, Point::kLink};
constexpr PointSet kOfDevices = {Point::kCall, Point::kCmMessage, Point::kCompletion,
                                 Point::kAsyncEvent, Point::kPacket};
constexpr PointSet kOfQueuePairs = {Point::kCall, Point::kCompletion, Point::kAsyncEvent,
                                    Point::kPacket};
constexpr PointSet kTimes = {Point::kTime};
constexpr PointSet kOfPayload = {Point::kCompletion, Point::kPacket};
constexpr PointSet kLinks = {Point::kLink};
constexpr PointSet kMemory = {Point::kMemory};
// All points except links. A link rule describes the network, so an action on the host has no
// moment there.
constexpr PointSet kButLinks = {Point::kCall,       Point::kCmMessage,  Point::kCmEvent,
                                Point::kCompletion, Point::kAsyncEvent, Point::kPacket,
                                Point::kTime,       Point::kMemory};
// The points whose moments have a program or a connection.
constexpr PointSet kWithPrograms = {Point::kCall,       Point::kCmMessage,  Point::kCmEvent,
                                    Point::kCompletion, Point::kAsyncEvent, Point::kPacket,
                                    Point::kMemory};

// The subjects whose moments have a field. The host defines this by the fields that it fills in
// (host/faults: cm.cc, async_events.cc). For calls, the table of calls defines it.
constexpr std::array<std::string_view, 2> kOfServices = {"req", "sidr_req"};
bool IsAmong(std::string_view word, std::span<const std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

// Returns the object of a call. kNothing for an unknown call.
CallAbout AboutOf(std::string_view subject) {
  for (const std::span<const CallInfo> table :
       {std::span<const CallInfo>(kCallTable), std::span<const CallInfo>(kCmCommandTable)}) {
    const auto found = std::ranges::find_if(
        table, [&](const CallInfo& call) { return call.name.text() == subject; });
    if (found != table.end()) return found->about;
  }
  return CallAbout::kNothing;
}

// Returns true for an asynchronous event of a QP.
bool IsOfQueuePair(std::string_view event) {
  const auto found = std::ranges::find(AsyncEvents(), event);
  return found != AsyncEvents().end() &&
         kAsyncEvents[static_cast<size_t>(found - AsyncEvents().begin())].of == EventObject::kQp;
}

const std::vector<Key>& AllKeys() {
  static const std::vector<Key> kKeys = {
      {"name", Role::kRule, Shape::kText, kEverywhere},
      {"at", Role::kRule, Shape::kTextOrTexts, kEverywhere},

      {"host", Role::kMatch, Shape::kText, kEverywhere},
      {"direction", Role::kMatch, Shape::kText, kOfAddresses},
      {"program", Role::kMatch, Shape::kText, kOfPrograms},
      {"device", Role::kMatch, Shape::kText, kOfDevices},
      {"local", Role::kMatch, Shape::kText, kOfAddresses},
      {"remote", Role::kMatch, Shape::kText, kOfAddresses},
      {"service_port", Role::kMatch, Shape::kInteger, {Point::kCmMessage}},
      {"qp", Role::kMatch, Shape::kInteger, kOfQueuePairs},
      {"qp_order", Role::kMatch, Shape::kInteger, kOfQueuePairs},
      {"min_bytes", Role::kMatch, Shape::kInteger, kOfPayload},
      {"max_bytes", Role::kMatch, Shape::kInteger, kOfPayload},
      {"mr_order", Role::kMatch, Shape::kInteger, kMemory},
      {"address", Role::kMatch, Shape::kInteger, kMemory},
      {"length", Role::kMatch, Shape::kInteger, kMemory},
      {"index", Role::kMatch, Shape::kInteger, {Point::kPacket}},
      {"from_ms", Role::kMatch, Shape::kInteger, kEverywhere},
      {"until_ms", Role::kMatch, Shape::kInteger, kEverywhere},
      {"after", Role::kMatch, Shape::kText, kEverywhere},
      {"at_ms", Role::kMatch, Shape::kInteger, kTimes},
      {"repeat_ms", Role::kMatch, Shape::kInteger, kTimes},

      {"nth", Role::kFrequency, Shape::kInteger, kEverywhere},
      {"onward", Role::kFrequency, Shape::kFlag, kEverywhere},
      {"every", Role::kFrequency, Shape::kInteger, kEverywhere},
      {"first", Role::kFrequency, Shape::kInteger, kEverywhere},
      {"times", Role::kFrequency, Shape::kInteger, kEverywhere},
      {"probability", Role::kFrequency, Shape::kNumber, kEverywhere},

      {"drop",
       Role::kAction,
       Shape::kFlag,
       {Point::kCmMessage, Point::kCmEvent, Point::kCompletion, Point::kAsyncEvent,
        Point::kPacket}},
      {"hold",
       Role::kAction,
       Shape::kFlag,
       {Point::kCall, Point::kCmMessage, Point::kCmEvent, Point::kCompletion, Point::kAsyncEvent,
        Point::kPacket, Point::kLink}},
      {"delay_ms",
       Role::kAction,
       Shape::kInteger,
       {Point::kCall, Point::kCmMessage, Point::kCmEvent, Point::kCompletion, Point::kAsyncEvent,
        Point::kPacket}},
      {"duplicate",
       Role::kAction,
       Shape::kInteger,
       {Point::kCmMessage, Point::kCompletion, Point::kPacket}},
      {"reorder", Role::kAction, Shape::kInteger, {Point::kPacket}},
      {"corrupt", Role::kAction, Shape::kFlag, {Point::kPacket}},
      {"reject", Role::kAction, Shape::kInteger, {Point::kCmMessage}},
      {"unreachable", Role::kAction, Shape::kInteger, {Point::kCmMessage}},
      {"errno", Role::kAction, Shape::kText, {Point::kCall}},
      {"status", Role::kAction, Shape::kTextOrInteger, {Point::kCmEvent, Point::kCompletion}},
      {"event", Role::kAction, Shape::kText, {Point::kCmEvent}},
      {"unmapped", Role::kAction, Shape::kFlag, kMemory},
      {"partition", Role::kAction, Shape::kFlag, kLinks},
      {"latency_ms", Role::kAction, Shape::kInteger, kLinks},
      {"rate_mbps", Role::kAction, Shape::kInteger, kLinks},
      {"loss", Role::kAction, Shape::kNumber, kLinks},
      {"async", Role::kAction, Shape::kText, kButLinks},
      {"remove_device", Role::kAction, Shape::kFlag, kButLinks},
      {"port", Role::kAction, Shape::kText, kButLinks},
      {"remove_address", Role::kAction, Shape::kText, kButLinks},
      {"move_address", Role::kAction, Shape::kText, kButLinks},
      {"pkey", Role::kAction, Shape::kInteger, kButLinks},
      {"pause_ms", Role::kAction, Shape::kInteger, kButLinks},
      {"crash", Role::kAction, Shape::kFlag, kButLinks},
      {"end_program", Role::kAction, Shape::kText, kWithPrograms},

      {"private_data",
       Role::kDetail,
       Shape::kText,
       {Point::kCmMessage, Point::kCmEvent},
       {"reject", "event"}},
      {"takes_effect", Role::kDetail, Shape::kFlag, {Point::kCall}, {"errno", "delay_ms", "hold"}},
      {"keeps_state", Role::kDetail, Shape::kFlag, {Point::kCompletion}, {"status"}},
      {"jitter_ms", Role::kDetail, Shape::kInteger, kLinks, {"latency_ms"}},
      {"queue_packets", Role::kDetail, Shape::kInteger, kLinks, {"rate_mbps"}},
      {"how", Role::kDetail, Shape::kText, kEverywhere, {"remove_device"}},
      {"return_after_ms",
       Role::kDetail,
       Shape::kInteger,
       kEverywhere,
       {"remove_device", "port", "remove_address", "pkey"}},
      {"pkey_index", Role::kDetail, Shape::kInteger, kEverywhere, {"pkey"}},
      {"to_device", Role::kDetail, Shape::kText, kEverywhere, {"move_address"}},
  };
  return kKeys;
}

}  // namespace

std::span<const Key> Keys() { return AllKeys(); }

const Key* FindKey(std::string_view name) {
  const auto found = std::ranges::find(AllKeys(), name, &Key::name);
  return found == AllKeys().end() ? nullptr : &*found;
}

bool CanStand(const Key& key, Point point, std::string_view subject) {
  if (!key.points.Has(point)) return false;
  if (key.role != Role::kMatch || subject.empty()) return true;
  if (key.name == "service_port") return IsAmong(subject, kOfServices);
  const bool is_qp = key.name == "qp" || key.name == "qp_order";
  if (point == Point::kAsyncEvent) return !is_qp || IsOfQueuePair(subject);
  if (point != Point::kCall) return true;
  if (is_qp) return AboutOf(subject) == CallAbout::kQueuePair;
  return key.name != "device" || AboutOf(subject) != CallAbout::kNothing;
}

std::vector<std::string> KeysAt(Point point, Role role, std::string_view subject) {
  std::vector<std::string> names;
  for (const Key& key : AllKeys()) {
    if (key.role == role && CanStand(key, point, subject)) names.emplace_back(key.name);
  }
  return names;
}

std::string SubjectOf(std::string_view name) {
  std::string subject;
  SpellCall(name, [&](char letter) { subject += letter; });
  return subject;
}

const char* PointName(Point point) { return kPointNames[static_cast<size_t>(point)]; }

std::optional<Point> PointOf(std::string_view name) {
  for (size_t i = 0; i < kPoints; i++) {
    if (name == kPointNames[i]) return Point{static_cast<uint8_t>(i)};
  }
  return std::nullopt;
}

std::vector<std::string> PointNames() { return {kPointNames.begin(), kPointNames.end()}; }

bool IsDeed(std::string_view action) {
  constexpr std::array kDeeds = {"async",          "remove_device", "port",
                                 "remove_address", "move_address",  "pkey",
                                 "pause_ms",       "crash",         "end_program"};
  return std::ranges::find(kDeeds, action) != kDeeds.end();
}

const std::vector<std::string>& AsyncEvents() {
  static const std::vector<std::string> kNames = [] {
    constexpr std::string_view kPrefix = "IBV_EVENT_";
    std::vector<std::string> names;
    for (const AsyncEventKind& kind : kAsyncEvents) {
      std::string& name = names.emplace_back(kind.name + kPrefix.size());
      for (char& letter : name) {
        letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
      }
    }
    return names;
  }();
  return kNames;
}

std::vector<std::string> AsyncEventsLike(size_t type) {
  const EventObject of = kAsyncEvents[type].of;
  std::vector<std::string> names;
  for (size_t i = 0; i < kAsyncEvents.size(); i++) {
    const bool is_the_ports_device =
        of == EventObject::kPort && kAsyncEvents[i].of == EventObject::kDevice;
    if (kAsyncEvents[i].of == of || is_the_ports_device) names.push_back(AsyncEvents()[i]);
  }
  return names;
}

const std::vector<std::string>& CompletionStatuses() {
  static const std::vector<std::string> kNames = {"success",
                                                  "loc_len_err",
                                                  "loc_qp_op_err",
                                                  "loc_eec_op_err",
                                                  "loc_prot_err",
                                                  "wr_flush_err",
                                                  "mw_bind_err",
                                                  "bad_resp_err",
                                                  "loc_access_err",
                                                  "rem_inv_req_err",
                                                  "rem_access_err",
                                                  "rem_op_err",
                                                  "retry_exc_err",
                                                  "rnr_retry_exc_err",
                                                  "loc_rdd_viol_err",
                                                  "rem_inv_rd_req_err",
                                                  "rem_abort_err",
                                                  "inv_eecn_err",
                                                  "inv_eec_state_err",
                                                  "fatal_err",
                                                  "resp_timeout_err",
                                                  "general_err",
                                                  "tm_err",
                                                  "tm_rndv_incomplete"};
  static_assert(IBV_WC_REM_ACCESS_ERR == 10 && IBV_WC_RNR_RETRY_EXC_ERR == 13 &&
                IBV_WC_FATAL_ERR == 19 && IBV_WC_TM_RNDV_INCOMPLETE == 23);
  return kNames;
}

}  // namespace rdmaemu::fault
