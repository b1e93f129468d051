#include "tools/trace/processes.h"

#include <algorithm>
#include <optional>
#include <set>

namespace rdmaemu::trace_tools {
namespace {

// In processes with more threads, threads of the same number match.
constexpr size_t kMaxMatchedThreads = 256;

// Returns a string that a `start` record has as a key of its own or among its arguments. Returns an
// empty text when the record has neither.
std::string StartText(const Json& fields, const char* key) {
  for (const Json* where :
       {&fields, fields.contains("arguments") ? &fields["arguments"] : nullptr}) {
    if (where == nullptr || !where->is_object()) continue;
    if (const auto it = where->find(key); it != where->end()) {
      return it->is_string() ? it->get<std::string>() : JsonText(*it);
    }
  }
  return {};
}

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Returns the number of records that two threads have in common, in thousandths of the larger
// thread's number.
size_t Likeness(const std::map<std::string, size_t>& one,
                const std::map<std::string, size_t>& other) {
  size_t common = 0, all_one = 0, all_other = 0;
  for (const auto& [what, count] : one) {
    all_one += count;
    if (const auto it = other.find(what); it != other.end()) common += std::min(count, it->second);
  }
  for (const auto& [what, count] : other) all_other += count;
  return common * 1000 / std::max<size_t>(1, std::max(all_one, all_other));
}

class Finder {
 public:
  void Take(const Record& record) {
    const bool begins = record.kind == "start";
    auto it = running_.find(record.process);
    if (it == running_.end() || begins) {
      // A forked child inherits its parent's program. The child may have a `start` or a `fork`
      // record of its own.
      const Json fields = begins || record.kind == "fork" ? FieldsOf(record) : Json::object();
      const bool continues = it != running_.end() && !has_begun_.contains(it->second);
      if (!continues) it = running_.insert_or_assign(record.process, Add(record, fields)).first;
      if (begins) has_begun_.insert(it->second);
    }
    found_.of_record.push_back(it->second);
    found_.images[it->second].threads[record.thread][record.kind + " " + record.what]++;
  }
  Processes Found() && { return std::move(found_); }

 private:
  uint32_t Add(const Record& record, const Json& fields) {
    std::string name = BaseName(StartText(fields, "program"));
    const std::string parent = StartText(fields, "parent");
    const auto traced = std::ranges::find_if(running_, [&](const auto& each) {
      return std::to_string(each.first) == parent && each.first != record.process;
    });
    const auto before = running_.find(record.process);  // exec(3)
    if (name.empty() && traced != running_.end()) name = programs_[traced->second];
    if (name.empty()) name = "process";
    programs_.push_back(name);
    if (before != running_.end()) {
      name = found_.images[before->second].name + ">" + name;
    } else if (traced != running_.end()) {
      name = found_.images[traced->second].name + "/" + name;
    }
    const size_t number = ++names_[name];
    if (number > 1) name += "." + std::to_string(number);
    found_.images.push_back({name, {}});
    return static_cast<uint32_t>(found_.images.size() - 1);
  }

  Processes found_;
  std::vector<std::string> programs_;  // of each image
  std::map<int64_t, uint32_t> running_;
  std::set<uint32_t> has_begun_;  // images with a `start` record
  std::map<std::string, size_t> names_;
};

}  // namespace

Processes FindProcesses(const std::vector<Record>& records) {
  Finder finder;
  for (const Record& record : records) finder.Take(record);
  return std::move(finder).Found();
}

std::map<int64_t, int64_t> MatchThreads(const ProcessImage& a, const ProcessImage& b) {
  std::map<int64_t, int64_t> of_b;
  std::set<int64_t> taken;
  const bool by_number = std::max(a.threads.size(), b.threads.size()) > kMaxMatchedThreads;
  for (const auto& [thread, records] : b.threads) {
    if (!by_number && thread > 1) continue;
    of_b[thread] = thread;
    taken.insert(thread);
  }
  // The most similar pairs are first. Among equally similar pairs, pairs of equal numbers are
  // first, then pairs of the lowest numbers.
  struct Pair {
    size_t likeness;
    int64_t a, b;
  };
  std::vector<Pair> pairs;
  for (const auto& [thread_a, of_a] : a.threads) {
    if (taken.contains(thread_a)) continue;
    for (const auto& [thread_b, records] : b.threads) {
      if (!of_b.contains(thread_b)) pairs.push_back({Likeness(of_a, records), thread_a, thread_b});
    }
  }
  std::ranges::stable_sort(pairs, [](const Pair& one, const Pair& other) {
    if (one.likeness != other.likeness) return one.likeness > other.likeness;
    const bool same_one = one.a == one.b, same_other = other.a == other.b;
    return same_one && !same_other;
  });
  for (const Pair& pair : pairs) {
    if (taken.contains(pair.a) || of_b.contains(pair.b)) continue;
    of_b[pair.b] = pair.a;
    taken.insert(pair.a);
  }
  int64_t next = a.threads.empty() ? 1 : a.threads.rbegin()->first + 1;
  for (const auto& [thread, records] : b.threads) {
    if (of_b.contains(thread)) continue;
    while (taken.contains(next)) next++;
    of_b[thread] = next;
    taken.insert(next);
  }
  return of_b;
}

}  // namespace rdmaemu::trace_tools
