// A rule's place and action in the words of the grammar, for lists and traces.
#include <string.h>

#include <algorithm>
#include <cctype>
#include <sstream>

#include "emulator/base/cm_event_names.h"
#include "emulator/fault/grammar.h"
#include "emulator/fault/scenario.h"

namespace rdmaemu::fault {
namespace {

std::string Milliseconds(Duration time) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
}
const char* IfEffect(bool takes_effect) { return takes_effect ? ", takes_effect = true" : ""; }

// "rejected"
std::string EventWord(uint32_t event) {
  constexpr std::string_view kPrefix = "RDMA_CM_EVENT_";
  std::string word = CmEventName(event);
  if (word.starts_with(kPrefix)) word.erase(0, kPrefix.size());
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::tolower(c); });
  return word;
}

struct Text {
  std::string operator()(const Pass&) const { return "nothing"; }
  std::string operator()(const Drop&) const { return "drop = true"; }
  std::string operator()(const Hold& hold) const {
    return std::string("hold = true") + IfEffect(hold.takes_effect);
  }
  std::string operator()(const Delay& delay) const {
    return "delay_ms = " + Milliseconds(delay.time) + IfEffect(delay.takes_effect);
  }
  std::string operator()(const Duplicate& duplicate) const {
    return "duplicate = " + std::to_string(duplicate.copies);
  }
  std::string operator()(const Reject& reject) const {
    return "reject = " + std::to_string(reject.reason);
  }
  std::string operator()(const Unreachable& unreachable) const {
    return "unreachable = " + std::to_string(unreachable.status);
  }
  std::string operator()(const FailCall& fail) const {
    const char* const name = strerrorname_np(fail.errno_value);
    return "errno = \"" + std::string(name == nullptr ? "?" : name) + "\"" +
           IfEffect(fail.takes_effect);
  }
  std::string operator()(const ChangeEvent& change) const {
    std::string text;
    if (change.event) text = "event = \"" + EventWord(*change.event) + "\"";
    if (change.status) {
      text += (text.empty() ? "status = " : ", status = ") + std::to_string(*change.status);
    }
    return text;
  }
  std::string operator()(const ChangeCompletion& change) const {
    return "status = \"" + CompletionStatuses()[change.status] + "\"" +
           (change.keeps_state ? ", keeps_state = true" : "");
  }
  std::string operator()(const ChangeAsync& change) const {
    return "async = \"" + AsyncEvents()[change.type] + "\"";
  }
  std::string operator()(const Reorder& reorder) const {
    return "reorder = " + std::to_string(reorder.packets);
  }
  std::string operator()(const Corrupt&) const { return "corrupt = true"; }
  std::string operator()(const Unmap&) const { return "unmapped = true"; }
  std::string operator()(const Link& link) const {
    std::string text;
    const auto add = [&](const std::string& key, const std::string& value) {
      text += (text.empty() ? "" : ", ") + key + " = " + value;
    };
    if (link.partition) add("partition", "true");
    if (link.latency > Duration::zero()) add("latency_ms", Milliseconds(link.latency));
    if (link.jitter > Duration::zero()) add("jitter_ms", Milliseconds(link.jitter));
    if (link.rate_mbps > 0) {
      add("rate_mbps", std::to_string(link.rate_mbps));
      add("queue_packets", std::to_string(link.queue_packets));
    }
    if (link.loss > 0) add("loss", std::to_string(link.loss));
    return text;
  }
  std::string operator()(const Deed& deed) const { return std::visit(*this, deed); }
  std::string operator()(const RemoveDevice& remove) const {
    constexpr const char* kWays[] = {"", ", how = \"rxe\"", ", how = \"hardware\""};
    return "remove_device = true" + Of(remove.device) + kWays[static_cast<size_t>(remove.how)] +
           Return(remove.return_after);
  }
  std::string operator()(const SetPort& port) const {
    return std::string("port = \"") + (port.up ? "up\"" : "down\"") + Of(port.device) +
           Return(port.return_after);
  }
  std::string operator()(const RemoveAddress& remove) const {
    return "remove_address = \"" + remove.address.ToString() + "\"" + Return(remove.return_after);
  }
  std::string operator()(const MoveAddress& move) const {
    return "move_address = \"" + move.address.ToString() + "\", to_device = \"" + move.device +
           "\"";
  }
  std::string operator()(const SetPkey& set) const {
    std::ostringstream text;
    text << "pkey = 0x" << std::hex << set.pkey << std::dec << ", pkey_index = " << set.index;
    return text.str() + Of(set.device) + Return(set.return_after);
  }
  std::string operator()(const RaiseAsync& raise) const {
    return "async = \"" + AsyncEvents()[raise.type] + "\"" + Of(raise.device);
  }
  std::string operator()(const PauseHost& pause) const {
    return "pause_ms = " + Milliseconds(pause.time);
  }
  std::string operator()(const CrashHost&) const { return "crash = true"; }
  std::string operator()(const EndProgram& end) const {
    return std::string("end_program = \"") +
           (end.which == EndProgram::Which::kSelf ? "self\"" : "peer\"");
  }

 private:
  static std::string Of(const std::string& device) {
    return device.empty() ? "" : ", device = \"" + device + "\"";
  }
  static std::string Return(const std::optional<Duration>& after) {
    return after ? ", return_after_ms = " + Milliseconds(*after) : "";
  }
};

}  // namespace

std::string PlaceName(Point point, std::string_view subject) {
  std::string name = PointName(point);
  if (!subject.empty()) name.append(".").append(subject);
  return name;
}

std::string PlacesText(const Rule& rule) {
  constexpr size_t kMaxTextBytes = 63;  // rdmaemu_rule::at
  const std::vector<std::string>& subjects = rule.match.subjects;
  if (subjects.empty()) return PlaceName(rule.point, {});
  const std::string first = PlaceName(rule.point, subjects.front());
  std::string all = first;
  for (size_t i = 1; i < subjects.size(); i++) all += ", " + PlaceName(rule.point, subjects[i]);
  if (all.size() <= kMaxTextBytes) return all;
  return first + " and " + std::to_string(subjects.size() - 1) + " more";
}

std::string ActionText(const Action& action) { return std::visit(Text{}, action); }

}  // namespace rdmaemu::fault
