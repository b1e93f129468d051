// Reads a rule's action: one action that its point allows, and the keys that belong to it.
#include <algorithm>

#include "emulator/fault/rule_reader.h"
#include "emulator/fault/words.h"

namespace rdmaemu::fault {
namespace {

constexpr uint64_t kMostCopies = 64;
constexpr uint64_t kMostOvertaking = 65536;
constexpr uint64_t kMostMbps = 1'000'000, kMostQueuePackets = 65536;
constexpr uint64_t kMostPkeyIndex = 65535;    // ibv_qp_attr::pkey_index
constexpr size_t kMaxPrivateDataBytes = 148;  // of a REJ; a SIDR_REP has 136

}  // namespace

void RuleReader::ReadAction() {
  const std::string_view action = ChooseAction();
  if (!error_.empty()) return;
  CheckDetails(action);
  // A host both sends and receives a message between two of its own addresses.
  const bool both_pass = rule_.point == Point::kCmMessage || rule_.point == Point::kPacket;
  if (both_pass && !rule_.match.direction) {
    rule_.match.direction = action == "unreachable" ? Direction::kSend : Direction::kReceive;
  }
  if (!action.empty()) rule_.action = TakeAction(action);
  // When moments have no device, the key `device` names the device of the action.
  if (!CanStandHere(*FindKey("device"))) rule_.match.device.clear();
}

// Returns an empty name after an error, and for a rule without an action.
std::string_view RuleReader::ChooseAction() {
  const std::vector<std::string> possible = KeysAt(rule_.point, Role::kAction);
  std::string_view chosen;
  for (const Key& key : Keys()) {
    const toml::node* const node = Get(key.name);
    if (key.role != Role::kAction || node == nullptr) continue;
    // `status` belongs to `event`. Alone, `status` is an action.
    if (key.name == "status" && table_.contains("event")) continue;
    // The properties of a link may be combined with each other, but not with a barrier.
    const bool is_of_link = rule_.point == Point::kLink && key.points.Has(Point::kLink) &&
                            key.name != "hold" && chosen != "hold";
    if (!chosen.empty() && !is_of_link) {
      Wrong(*node, std::string(key.name) + " and " + std::string(chosen) +
                       " are two actions; a rule has one");
    }
    chosen = key.name;
  }
  if (chosen.empty()) {
    if (rule_.point == Point::kLink) {
      Wrong(table_, "the rule does nothing; at this point it can: " + Listed(possible));
    }
    return {};
  }
  if (!FindKey(chosen)->points.Has(rule_.point)) {
    WrongAt(chosen, std::string(chosen) + " is not possible at " + Quoted(Places()) +
                        "; there a rule can: " + Listed(possible));
    return {};
  }
  return chosen;
}

void RuleReader::CheckDetails(std::string_view action) {
  for (const Key& key : Keys()) {
    const toml::node* const node = Get(key.name);
    if (key.role != Role::kDetail || node == nullptr) continue;
    const bool goes_with = std::ranges::find(key.of, action) != key.of.end() ||
                           (rule_.point == Point::kLink && table_.contains(key.of.front()));
    if (goes_with && key.points.Has(rule_.point)) continue;
    std::vector<std::string> places;
    for (const std::string& name : PointNames()) {
      if (key.points.Has(*PointOf(name))) places.push_back(Quoted(name));
    }
    Wrong(*node, std::string(key.name) + " belongs to " + Listed(key.of) +
                     (key.points.Has(rule_.point) ? "" : ", at " + Listed(places)));
  }
}

Action RuleReader::TakeAction(std::string_view action) {
  if (action == "drop") {
    ReadTrue("drop");
    return Drop{};
  }
  if (action == "hold") {
    ReadTrue("hold");
    return Hold{ReadFlag("takes_effect")};
  }
  if (action == "delay_ms") return Delay{TimeOf("delay_ms"), ReadFlag("takes_effect")};
  if (action == "duplicate") {
    return Duplicate{static_cast<uint32_t>(ReadNumber("duplicate", 1, kMostCopies).value_or(1))};
  }
  if (action == "reject") return ReadReject();
  if (action == "unreachable") return ReadUnreachable();
  if (action == "errno") return ReadErrno();
  if (rule_.point == Point::kLink) return ReadLink();
  if (action == "reorder") return Reorder{ReadNumber("reorder", 1, kMostOvertaking).value_or(1)};
  if (action == "unmapped") {
    ReadTrue("unmapped");
    return Unmap{};
  }
  if (action == "corrupt") {
    ReadTrue("corrupt");
    return Corrupt{};
  }
  if (action == "async" && rule_.point == Point::kAsyncEvent) return ReadAsync();
  if (IsDeed(action)) return ReadDeed(action);
  return ReadStatus();
}

Action RuleReader::ReadLink() {
  Link link;
  if (Get("partition") != nullptr) {
    ReadTrue("partition");
    link.partition = true;
  }
  link.latency = TimeOf("latency_ms");
  link.jitter = TimeOf("jitter_ms");
  link.rate_mbps = ReadNumber("rate_mbps", 1, kMostMbps).value_or(link.rate_mbps);
  link.queue_packets =
      ReadNumber("queue_packets", 1, kMostQueuePackets).value_or(link.queue_packets);
  ReadShare("loss", link.loss);
  return link;
}

// An event for another kind of object would give the program a pointer of a wrong type.
Action RuleReader::ReadAsync() {
  const auto type = ReadWord("async", "asynchronous event", AsyncEvents());
  if (!type) return ChangeAsync{};
  if (rule_.match.subjects.empty()) {
    WrongAt("async",
            "the new type depends on the old type of the event: name the old type in at, such as "
            "\"async.qp_fatal\"");
    return ChangeAsync{};
  }
  for (const std::string& subject : rule_.match.subjects) {
    const auto from = std::ranges::find(AsyncEvents(), subject);
    const auto like = AsyncEventsLike(static_cast<size_t>(from - AsyncEvents().begin()));
    if (std::ranges::find(like, AsyncEvents()[*type]) != like.end()) continue;
    WrongAt("async", Quoted(subject) + " is of another kind of object than " +
                         Quoted(AsyncEvents()[*type]) + "; it can become: " + Listed(like));
  }
  return ChangeAsync{static_cast<uint32_t>(*type)};
}

Deed RuleReader::ReadDeed(std::string_view action) {
  const std::string& device = rule_.match.device;
  if (action == "remove_device") return ReadRemoveDevice();
  if (action == "port") return ReadPort();
  if (action == "remove_address") return RemoveAddress{ReadAddress(action), ReadReturn()};
  if (action == "move_address") {
    MoveAddress move{{}, ReadAddress(action)};
    if (!ReadText("to_device", move.device)) {
      WrongAt(action, "move_address needs to_device, the name of the new device of the address");
    }
    return move;
  }
  if (action == "pkey") return ReadPkey();
  if (action == "pause_ms") return PauseHost{TimeOf("pause_ms")};
  if (action == "crash") {
    ReadTrue("crash");
    return CrashHost{};
  }
  if (action == "end_program") {
    const auto which = ReadWord(action, "program to end", {"self", "peer"});
    return EndProgram{EndProgram::Which{static_cast<uint8_t>(which.value_or(0))}};
  }
  const auto type = ReadWord("async", "asynchronous event", AsyncEvents());
  if (type && AsyncEvents()[*type] == "wq_fatal") {
    WrongAt("async", "no device here has work queues (ibv_wq), of which wq_fatal would be");
  }
  return RaiseAsync{device, static_cast<uint32_t>(type.value_or(0))};
}

Deed RuleReader::ReadRemoveDevice() {
  static const std::vector<std::string> kWays = {"profile", "rxe", "hardware"};
  ReadTrue("remove_device");
  RemoveDevice remove{rule_.match.device, {}, ReadReturn()};
  if (const auto how = ReadWord("how", "way to remove a device", kWays)) {
    remove.how = RemoveDevice::How{static_cast<uint8_t>(*how)};
  }
  return remove;
}

Deed RuleReader::ReadPort() {
  const auto state = ReadWord("port", "state of a port", {"down", "up"});
  return SetPort{rule_.match.device, state == size_t{1}, ReadReturn()};
}

Deed RuleReader::ReadPkey() {
  const auto pkey = ReadNumber("pkey", 0, UINT16_MAX);
  const auto index = ReadNumber("pkey_index", 0, kMostPkeyIndex);
  return SetPkey{rule_.match.device, static_cast<uint32_t>(index.value_or(0)),
                 static_cast<uint16_t>(pkey.value_or(0)), ReadReturn()};
}

NetAddress RuleReader::ReadAddress(std::string_view key) {
  std::string text;
  if (!ReadText(key, text)) return {};
  const std::optional<NetAddress> address = NetAddress::Parse(text);
  if (!address) WrongAt(key, Quoted(text) + " is not an IPv4 or IPv6 address");
  return address.value_or(NetAddress{});
}

std::optional<Duration> RuleReader::ReadReturn() {
  std::optional<Duration> after;
  ReadTime("return_after_ms", after);
  return after;
}

Action RuleReader::ReadErrno() {
  FailCall fail{0, ReadFlag("takes_effect")};
  const std::vector<std::string> names = ErrnoNames();
  if (const auto index = ReadWord("errno", "errno", names)) {
    fail.errno_value = ErrnoOf(names[*index]).value_or(0);
  }
  return fail;
}

void RuleReader::CheckSubject(std::string_view action, const std::vector<std::string>& subjects) {
  const auto is_among = [&](const std::string& wanted) {
    return std::ranges::find(subjects, wanted) != subjects.end();
  };
  const std::vector<std::string>& wanted = rule_.match.subjects;
  if (!wanted.empty() && std::ranges::all_of(wanted, is_among)) return;
  std::vector<std::string> places;
  for (const std::string& subject : subjects) {
    places.push_back(Quoted(PlaceName(rule_.point, subject)));
  }
  WrongAt(action, std::string(action) + " is possible at: " + Listed(places));
}

Action RuleReader::ReadReject() {
  CheckSubject("reject", {"req", "sidr_req", "rep", "rtu"});
  return Reject{static_cast<uint16_t>(ReadNumber("reject", 0, 65535).value_or(0)),
                ReadPrivateData()};
}

std::vector<uint8_t> RuleReader::ReadPrivateData() {
  const toml::node* const node = Get("private_data");
  if (node == nullptr) return {};
  const auto text = node->value_exact<std::string>();
  if (text && text->size() <= kMaxPrivateDataBytes) return {text->begin(), text->end()};
  Wrong(*node, "private_data must be a string of at most " + std::to_string(kMaxPrivateDataBytes) +
                   " bytes");
  return {};
}

Action RuleReader::ReadUnreachable() {
  CheckSubject("unreachable", {"req", "rep", "sidr_req"});
  const std::optional<int> status = ReadSigned("unreachable", "the event's status, -errno");
  if (status && *status >= 0) {
    WrongAt("unreachable",
            "unreachable is the event's status, which is below 0: -110 for "
            "ETIMEDOUT; a status of SIDR comes by reject at \"cm.sidr_req\"");
  }
  if (rule_.match.direction != Direction::kSend) {
    WrongAt("direction", "sends fail at the sender only: direction must be \"send\"");
  }
  return Unreachable{status.value_or(0)};
}

// Reads `status`, `event`, or both.
Action RuleReader::ReadStatus() {
  if (rule_.point == Point::kCompletion) {
    const auto status = ReadWord("status", "completion status", CompletionStatuses());
    return ChangeCompletion{static_cast<uint32_t>(status.value_or(0)), ReadFlag("keeps_state")};
  }
  ChangeEvent change{{}, ReadSigned("status", "-errno, or a reject reason")};
  const auto& events = vocabulary_[static_cast<size_t>(Point::kCmEvent)];
  if (const auto event = ReadWord("event", "event", events)) {
    change.event = static_cast<uint32_t>(*event);
  }
  change.private_data = ReadPrivateData();
  return change;
}

}  // namespace rdmaemu::fault
