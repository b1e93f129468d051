#include "tools/trace/compare.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "tools/trace/align.h"

namespace rdmaemu::trace_tools {
namespace {

// Maps texts to numbers. Equal texts have equal numbers.
class Numbers {
 public:
  uint32_t Of(const std::string& text) {
    return numbers_.try_emplace(text, static_cast<uint32_t>(numbers_.size())).first->second;
  }

 private:
  std::unordered_map<std::string, uint32_t> numbers_;
};

// Splits an item's text ("errno=ENOMEM") into pairs of a part's name and its value.
std::vector<std::pair<std::string, std::string>> PartsOf(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> parts;
  for (size_t at = text.find('\n') + 1; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string part = text.substr(at, end - at);
    const size_t sign = std::min(part.find('='), part.size());
    parts.emplace_back(part.substr(0, sign), part.substr(std::min(sign + 1, part.size())));
    at = end + 1;
  }
  return parts;
}

std::vector<PartDifference> DifferentParts(const std::string& a, const std::string& b) {
  const auto in_a = PartsOf(a), in_b = PartsOf(b);
  const std::map<std::string, std::string> of_a(in_a.begin(), in_a.end()),
      of_b(in_b.begin(), in_b.end());
  const auto value = [](const std::map<std::string, std::string>& of, const std::string& part) {
    const auto it = of.find(part);
    return it == of.end() ? std::string() : it->second;
  };
  std::vector<PartDifference> parts;
  for (const auto& [part, text] : in_a) {
    if (value(of_b, part) != text) parts.push_back({part, text, value(of_b, part)});
  }
  for (const auto& [part, text] : in_b) {
    if (!of_a.contains(part)) parts.push_back({part, "", text});
  }
  // No value differs, so the parts of one name differ in their order.
  if (parts.empty()) parts.push_back({"", "in another order", ""});
  return parts;
}

// Compares one stream.
class StreamComparer {
 public:
  StreamComparer(const StreamKey& stream, const std::vector<Item>& a, const std::vector<Item>& b,
                 Comparison& comparison)
      : stream_(stream), a_(a), b_(b), comparison_(comparison) {}

  void Run() {
    Numbers numbers;
    const auto number = [&](const std::vector<Item>& items) {
      std::vector<uint32_t> of;
      for (const Item& item : items) of.push_back(numbers.Of(item.text));
      return of;
    };
    const Alignment alignment = Align(number(a_), number(b_));
    if (!alignment.is_exact) comparison_.not_aligned.push_back(stream_);
    std::vector<size_t> only_a, only_b;
    for (const Step& step : alignment.steps) {
      if (step.kind == Step::Kind::kOnlyA) only_a.push_back(step.a);
      if (step.kind == Step::Kind::kOnlyB) only_b.push_back(step.b);
      if (step.kind != Step::Kind::kSame) continue;
      Flush(only_a, only_b);
      equal_.emplace_back(step.a, step.b);
    }
    Flush(only_a, only_b);
  }

 private:
  // Pairs records of both traces that are between the same equal records and have the same head.
  // Paired records differ in parts. Each other record is in one trace only.
  void Flush(std::vector<size_t>& only_a, std::vector<size_t>& only_b) {
    if (only_a.empty() && only_b.empty()) return;
    Numbers heads;
    std::vector<uint32_t> in_a, in_b;
    for (const size_t i : only_a) in_a.push_back(heads.Of(HeadOf(a_[i].text)));
    for (const size_t i : only_b) in_b.push_back(heads.Of(HeadOf(b_[i].text)));
    for (const Step& step : Align(in_a, in_b).steps) {
      const Item* const a = step.kind == Step::Kind::kOnlyB ? nullptr : &a_[only_a[step.a]];
      const Item* const b = step.kind == Step::Kind::kOnlyA ? nullptr : &b_[only_b[step.b]];
      Add(a, b);
    }
    only_a.clear();
    only_b.clear();
  }

  void Add(const Item* a, const Item* b) {
    Difference difference;
    difference.stream = stream_;
    difference.head = HeadOf((a != nullptr ? a : b)->text);
    difference.order_ns = (a != nullptr ? a : b)->since_start_ns;
    if (a != nullptr) difference.a = *a;
    if (b != nullptr) difference.b = *b;
    if (a != nullptr && b != nullptr) difference.parts = DifferentParts(a->text, b->text);
    difference.equal_before = equal_.size();
    for (size_t i = equal_.size() - std::min(equal_.size(), kContextRecords); i < equal_.size();
         i++) {
      difference.context_a.push_back(a_[equal_[i].first]);
      difference.context_b.push_back(b_[equal_[i].second].line);
    }
    comparison_.differences.push_back(std::move(difference));
  }

  const StreamKey& stream_;
  const std::vector<Item>&a_, &b_;
  Comparison& comparison_;
  std::vector<std::pair<size_t, size_t>> equal_;
};

}  // namespace

const Difference* Comparison::First() const {
  const auto first = std::ranges::find_if(
      differences, [](const Difference& each) { return each.accepted.empty(); });
  return first == differences.end() ? nullptr : &*first;
}

Comparison Compare(const CanonicalTrace& a, const CanonicalTrace& b) {
  Comparison comparison;
  comparison.records_a = a.records, comparison.records_b = b.records;
  comparison.compared_a = a.compared, comparison.compared_b = b.compared;
  std::set<StreamKey> keys;
  for (const auto& [key, items] : a.streams) keys.insert(key);
  for (const auto& [key, items] : b.streams) keys.insert(key);
  static const std::vector<Item> kNone;
  const auto items = [](const CanonicalTrace& trace, const StreamKey& key) -> const auto& {
    const auto it = trace.streams.find(key);
    return it == trace.streams.end() ? kNone : it->second;
  };
  for (const StreamKey& key : keys) {
    StreamComparer(key, items(a, key), items(b, key), comparison).Run();
    comparison.streams.push_back(key);
  }
  std::ranges::stable_sort(comparison.differences, {}, &Difference::order_ns);
  return comparison;
}

void AddRunDifference(const std::string& what, const std::string& a, const std::string& b,
                      Comparison& comparison) {
  Difference difference;
  difference.stream.process = what;
  difference.head = "status of " + what;
  difference.order_ns = INT64_MAX;
  difference.a = Item{0, INT64_MAX, difference.head + "\nstatus=" + a + "\n"};
  difference.b = Item{0, INT64_MAX, difference.head + "\nstatus=" + b + "\n"};
  difference.parts = {{"status", a, b}};
  comparison.streams.push_back(difference.stream);
  comparison.differences.push_back(std::move(difference));
}

std::string StreamText(const StreamKey& stream) {
  std::string text = stream.process;
  if (stream.thread != 0) text += ", thread " + std::to_string(stream.thread);
  if (!stream.object.empty()) text += ", " + stream.object;
  if (!stream.part.empty()) text += (stream.object.empty() ? ", " : " ") + stream.part;
  return text;
}

}  // namespace rdmaemu::trace_tools
