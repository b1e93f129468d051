// Where a rule stands, and where it was to stand when there is no such place.
#include <algorithm>

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

}  // namespace

void RuleReader::ReadPlace() {
  std::string place;
  if (!ReadText("at", place)) {
    Wrong(table_, "at is missing: the point where the rule stands, such as \"cm.req\"");
    return;
  }
  const size_t dot = place.find('.');
  const std::optional<Point> known = PointOf(place.substr(0, dot));
  if (!known) {
    WrongPoint(place);
    return;
  }
  rule_.point = *known;
  if (dot == place.npos) return;
  rule_.match.subject = place.substr(dot + 1);
  const std::vector<std::string>& words = vocabulary_[static_cast<size_t>(*known)];
  if (std::ranges::find(words, rule_.match.subject) != words.end()) return;
  const std::string wrong = "there is no " + Quoted(place) + "; ";
  if (words.empty()) {
    WrongAt("at", wrong + DidYouMean(PointName(*known)));
  } else if (const auto nearest = Nearest(rule_.match.subject, words)) {
    WrongAt("at", wrong + DidYouMean(PlaceName(*known, *nearest)));
  } else {
    WrongAt("at", wrong + OneOf(PlacesAt(*known, vocabulary_)));
  }
}

// What was meant may be a place whose other half is right, or a key.
void RuleReader::WrongPoint(const std::string& place) {
  const size_t dot = place.find('.');
  const std::string point = place.substr(0, dot);
  const std::string subject = dot == place.npos ? point : place.substr(dot + 1);
  const std::string wrong = "there is no point " + Quoted(point) + "; ";
  const std::vector<std::string> places = PlacesOf(subject, vocabulary_);
  if (FindKey(point) != nullptr) {
    const bool is_of_host = IsDeed(point) || point == "device" || point == "host";
    WrongAt("at", wrong + "it is a key, which stands beside at" +
                      (is_of_host ? ", as do those of what is done to the host: " +
                                        Listed(KeysAt(Point::kTime, Role::kAction))
                                  : "") +
                      "; at is one of: " + Listed(PointNames()));
  } else if (places.size() == 1) {
    WrongAt("at", wrong + DidYouMean(places.front()));
  } else if (!places.empty()) {
    WrongAt("at", wrong + Instead(place, places));
  } else if (PointOf(subject)) {
    WrongAt("at", wrong + DidYouMean(subject));
  } else {
    WrongAt("at", wrong + Instead(point, PointNames()));
  }
}

}  // namespace rdmaemu::fault
