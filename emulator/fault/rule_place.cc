// Reads a rule's places, and suggests a place when there is none of that name.
#include <algorithm>
#include <iterator>

#include "emulator/abi/call_table.h"
#include "emulator/base/call_spelling.h"
#include "emulator/fault/rule_reader.h"
#include "emulator/fault/words.h"

namespace rdmaemu::fault {
namespace {

// "cm.req", "cm.rep", ...
std::vector<std::string> PlacesAt(Point point, const Vocabulary& vocabulary) {
  std::vector<std::string> places;
  for (const std::string& subject : vocabulary[static_cast<size_t>(point)]) {
    places.push_back(PlaceName(point, subject));
  }
  return places;
}

// "cm.req" for "req".
std::vector<std::string> PlacesOf(const std::string& subject, const Vocabulary& vocabulary) {
  std::vector<std::string> places;
  for (size_t i = 0; i < kPoints; i++) {
    if (std::ranges::find(vocabulary[i], subject) == vocabulary[i].end()) continue;
    places.push_back(PlaceName(Point{static_cast<uint8_t>(i)}, subject));
  }
  return places;
}

// Returns what the word would be in the spelling of rules: reg_mr for "ibv_reg_mr" and "RegMr",
// connect for "rdma_connect", bind for "rdma_bind_addr".
std::string AsCall(std::string_view word) {
  for (const std::string_view prefix : {"ibv_", "rdma_"}) {
    if (word.starts_with(prefix)) word.remove_prefix(prefix.size());
  }
  std::string call;
  SpellCall(word, [&](char letter) { call += letter; });
  const auto* const other = std::ranges::find(kFunctionsOfCalls, call, &FunctionOfCall::function);
  return other == std::end(kFunctionsOfCalls) ? call : std::string(other->call);
}

}  // namespace

void RuleReader::ReadPlaces() {
  const toml::node* const node = Get("at");
  if (node == nullptr) {
    Wrong(table_, "at is missing: name the place of the rule, such as \"cm.req\"");
    return;
  }
  const toml::array* const list = node->as_array();
  if (list == nullptr) {
    ReadPlace(*node);
    return;
  }
  if (list->empty() || list->size() > Match::kMaxSubjects) {
    Wrong(*node, "at has 1 to " + std::to_string(Match::kMaxSubjects) + " places");
    return;
  }
  std::optional<Point> point;
  for (const toml::node& each : *list) {
    const size_t before = rule_.match.subjects.size();
    if (!ReadPlace(each)) return;
    if (point && rule_.point != *point) {
      Wrong(each, "all places of a rule are of one point, here " + Quoted(PointName(*point)) +
                      "; write another rule for this one");
      return;
    }
    if (rule_.match.subjects.size() == before && list->size() > 1) {
      Wrong(each,
            Quoted(PointName(rule_.point)) + " means every place of the point: write it alone");
      return;
    }
    point = rule_.point;
  }
}

bool RuleReader::ReadPlace(const toml::node& node) {
  const std::string place = node.value_exact<std::string>().value_or("");
  if (place.empty() || place.size() > kMaxNameBytes) {
    Wrong(node, "at must be a place, such as \"cm.req\", or a list of places");
    return false;
  }
  const size_t dot = place.find('.');
  const std::optional<Point> known = PointOf(place.substr(0, dot));
  if (!known) {
    WrongPoint(node, place);
    return false;
  }
  rule_.point = *known;
  if (dot == place.npos) return true;
  const std::string subject = place.substr(dot + 1);
  const std::vector<std::string>& words = vocabulary_[static_cast<size_t>(*known)];
  if (std::ranges::find(words, subject) != words.end()) {
    rule_.match.subjects.push_back(subject);
    return true;
  }
  const std::string wrong = "there is no " + Quoted(place) + "; ";
  if (words.empty()) {
    Wrong(node, wrong + DidYouMean(PointName(*known)));
  } else if (const auto nearest =
                 Nearest(*known == Point::kCall ? AsCall(subject) : SubjectOf(subject), words)) {
    Wrong(node, wrong + DidYouMean(PlaceName(*known, *nearest)));
  } else {
    Wrong(node, wrong + OneOf(PlacesAt(*known, vocabulary_)));
  }
  return false;
}

std::string RuleReader::Places() const { return PlacesText(rule_); }

bool RuleReader::CanStandHere(const Key& key) const {
  const std::vector<std::string>& subjects = rule_.match.subjects;
  if (subjects.empty()) return CanStand(key, rule_.point);
  return std::ranges::any_of(
      subjects, [&](const std::string& subject) { return CanStand(key, rule_.point, subject); });
}

// The wrong word may be a place with one correct half, or a key.
void RuleReader::WrongPoint(const toml::node& node, const std::string& place) {
  const size_t dot = place.find('.');
  const std::string point = place.substr(0, dot);
  const std::string subject = dot == place.npos ? point : place.substr(dot + 1);
  const std::string wrong = "there is no point " + Quoted(point) + "; ";
  const std::vector<std::string> places = PlacesOf(subject, vocabulary_);
  if (FindKey(point) != nullptr) {
    const bool is_of_host = IsDeed(point) || point == "device" || point == "host";
    Wrong(node, wrong + "it is a key of a rule and not a point" +
                    (is_of_host ? ", as are the actions on the host: " +
                                      Listed(KeysAt(Point::kTime, Role::kAction))
                                : "") +
                    "; at is one of: " + Listed(PointNames()));
  } else if (places.size() == 1) {
    Wrong(node, wrong + DidYouMean(places.front()));
  } else if (!places.empty()) {
    Wrong(node, wrong + Instead(place, places));
  } else if (PointOf(subject)) {
    Wrong(node, wrong + DidYouMean(subject));
  } else {
    Wrong(node, wrong + Instead(point, PointNames()));
  }
}

}  // namespace rdmaemu::fault
