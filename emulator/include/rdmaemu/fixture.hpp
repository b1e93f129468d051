// A test's own hosts, and the test's message on failure, for any test framework. testing.h connects
// GoogleTest, catch2.hpp and doctest.hpp connect the others. Header only.
#pragma once

#include <errno.h>
#include <unistd.h>
#include <rdmaemu/backend.hpp>
#include <rdmaemu/completions.hpp>
#include <rdmaemu/framework.hpp>
#include <rdmaemu/rdmaemu.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace rdmaemu::testing {

// Runs `body` under a rule. Fails the test when the rule never fired.
template <class Body>
void WithFault(const std::string& rule, Body&& body) {
  const Fault fault(rule);
  std::forward<Body>(body)();
  if (fault.fired() > 0) return;
  Fail("the rule \"" + rule + "\" matched " + std::to_string(fault.matched()) +
       " times and never fired");
}

// The directory below which a failed test leaves a report: RDMAEMU_REPORT, else a directory of its
// own in Bazel's TEST_UNDECLARED_OUTPUTS_DIR. "": no test leaves a report.
inline std::string ReportDirectory() {
  if (const char* const named = std::getenv("RDMAEMU_REPORT")) return named;
  const char* const outputs = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  return outputs == nullptr || *outputs == '\0' ? std::string()
                                                : std::string(outputs) + "/rdmaemu-reports";
}

// The limit of each trace and of each capture in a report, in bytes. Hosts keep so much in memory.
inline constexpr size_t kReportBytes = size_t{8} << 20;

// Writes the report of the running test. Returns the report's directory, or "" when no test leaves
// a report or the report cannot be written.
inline std::string WriteReport() {
  const std::string directory = ReportDirectory();
  if (directory.empty()) return {};
  constexpr size_t kMaxPathBytes = 4096;
  std::string path(kMaxPathBytes, '\0');
  const int length = rdmaemu_report(directory.c_str(), TheFramework().test_name().c_str(),
                                    path.data(), path.size());
  if (length < 0) {
    std::fprintf(stderr, "rdmaemu: the test leaves no report: %s\n",
                 length == -ENOENT ? "it has closed its hosts" : rdmaemu_last_error());
    return {};
  }
  path.resize(std::strlen(path.c_str()));
  return path;
}

// Returns the line that names a report.
inline std::string ReportLine(const std::string& report) {
  if (report.empty()) return {};
  const bool is_drawn = access((report + "/ladder.html").c_str(), R_OK) == 0;
  return "the report of this test is in " + report +
         (is_drawn ? "; open its ladder.html\n"
                   : "; draw it: cd " + report +
                         " && rdmaemu trace ladder *.jsonl *.pcapng -o ladder.html\n");
}

// How many lines of the timeline a failed test's message shows. A file holds all lines.
inline constexpr size_t kTimelineLines = 60;

// Writes the text to timeline.txt of the report. Without a report, writes the text to a new file
// that is named after the running test. A test that runs several times (--gtest_repeat, a section
// of Catch2) writes several files. Returns the file's path, or "" when the file cannot be written.
// Bazel keeps the files in TEST_UNDECLARED_OUTPUTS_DIR.
inline std::string WriteTimelineFile(const std::string& text, const std::string& report = {}) {
  const auto write = [&](const std::string& path) {
    std::ofstream out(path);
    out << text;
    out.close();
    if (!out) std::remove(path.c_str());
    return out ? path : std::string();
  };
  if (!report.empty()) return write(report + "/timeline.txt");
  const char* directory = nullptr;
  for (const char* name : {"TEST_UNDECLARED_OUTPUTS_DIR", "TMPDIR"}) {
    if (directory == nullptr) directory = std::getenv(name);
  }
  std::string file = TheFramework().test_name();
  for (char& letter : file) {
    const bool is_plain = (letter >= '0' && letter <= '9') || (letter >= 'A' && letter <= 'Z') ||
                          (letter >= 'a' && letter <= 'z') || letter == '.' || letter == '-';
    if (!is_plain) letter = '_';
  }
  constexpr size_t kMaxNameBytes = 150;
  static std::atomic<int> files{0};
  return write(std::string(directory == nullptr ? "/tmp" : directory) + "/rdmaemu-timeline-" +
               file.substr(0, kMaxNameBytes) + "-" + std::to_string(getpid()) + "-" +
               std::to_string(++files) + ".txt");
}

// Returns kTimelineLines lines of the text around that byte, half of them on each side where
// possible. A file has the whole text, if the text is longer or the test leaves a report.
inline std::string TimelineAround(const std::string& text, size_t byte,
                                  const std::string& report = {}) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line + "\n");
  const bool is_whole = lines.size() <= kTimelineLines;
  const std::string path =
      is_whole && report.empty() ? std::string() : WriteTimelineFile(text, report);
  if (is_whole) return text;
  size_t at = 0;
  for (size_t begun = 0; at < lines.size() && begun < byte; at++) begun += lines[at].size();
  const size_t first = std::min(at < kTimelineLines / 2 ? 0 : at - kTimelineLines / 2,
                                lines.size() - kTimelineLines);
  std::string shown =
      "[lines " + std::to_string(first + 1) + " to " + std::to_string(first + kTimelineLines) +
      " of " + std::to_string(lines.size()) +
      "; all of them: " + (path.empty() ? "no file could be written" : path) + "]\n";
  for (size_t i = 0; i < kTimelineLines; i++) shown += lines[first + i];
  return shown;
}

// A timeline, and how many of its bytes were written before the failure.
struct FailureTimeline {
  std::string text;
  size_t byte;
};

// Joins the timelines at two times: at the failure, and now. The hosts keep only their latest
// records, so the beginning of the first timeline may be missing in the second one.
inline FailureTimeline JoinTimelines(const std::string& at_failure, const std::string& now) {
  size_t dropped = 0;  // bytes at the beginning of `at_failure` that `now` lacks
  while (dropped < at_failure.size() &&
         now.compare(0, at_failure.size() - dropped, at_failure, dropped) != 0) {
    const size_t end = at_failure.find('\n', dropped);
    dropped = end == std::string::npos ? at_failure.size() : end + 1;
  }
  const bool is_gap = dropped == at_failure.size() && !at_failure.empty() && !now.empty();
  return {at_failure.substr(0, dropped) +
              (is_gap ? "[the host did more here than its timeline holds]\n" : "") + now,
          at_failure.size()};
}

// Stores the rules that exist now, so that rules that are added later can be removed.
class RulesBefore {
 public:
  RulesBefore() {
    for (const rdmaemu_rule& rule : All()) names_.insert(rule.name);
  }
  void RemoveOthers() const {
    for (const rdmaemu_rule& rule : All()) {
      if (names_.count(rule.name) == 0) rdmaemu_rule_remove(rule.name);
    }
  }

 private:
  static std::vector<rdmaemu_rule> All() {
    std::vector<rdmaemu_rule> rules(static_cast<size_t>(std::max(rdmaemu_rules(nullptr, 0), 0)));
    rdmaemu_rules(rules.data(), rules.size());
    return rules;
  }

  std::set<std::string> names_;
};

// The hosts of a test, by backend: embedded hosts that end with the object, the host process of
// `rdmaemu run`, or the machine. When the backend lacks something, the test ends as skipped, with
// the reason.
class TestHost {
 public:
  explicit TestHost(const EmbeddingOptions& options = {})
      : backend_(CurrentBackend()), devices_(detail::DevicesOf(options)) {
    check_need = SkipWithout;
    skip_refused = [](const char* why) { Skip(why); };
    if (backend_ == Backend::kEmbedded) {
      EmbeddingOptions kept = options;
      if (kept.report_bytes == 0 && !ReportDirectory().empty()) kept.report_bytes = kReportBytes;
      embedded_.emplace(kept);
      return;
    }
    detail::CheckBackend(backend_);
    if (!options.scenario_path.empty()) SkipWithout(Need::kRules);
    SkipWithoutDevices();
    if (WhyNotOn(backend_, Need::kRules).empty()) {
      rules_before_.emplace();
      if (!options.scenario_path.empty()) {
        Skip("the test's host has a scenario; give it to `rdmaemu run --scenario`");
      }
    }
  }
  ~TestHost() {
    if (rules_before_) rules_before_->RemoveOthers();
  }
  TestHost(const TestHost&) = delete;
  TestHost& operator=(const TestHost&) = delete;

  Backend backend() const { return backend_; }
  // The devices of the first host. On `host` and `system`: all devices that the process sees.
  const std::vector<TestDevice>& devices() const { return devices_; }

  // Adds another machine to the same network.
  void Add(const HostOptions& options) { Embedded().Add(options); }
  // Powers the machine off. No peer is notified.
  void Remove(const std::string& name) { Embedded().Remove(name); }

  // On a host process, returns CLOCK_MONOTONIC's time unless the host has another clock.
  std::chrono::nanoseconds now() const {
    Require(Need::kTime);
    return std::chrono::nanoseconds(Checked(rdmaemu_now()));
  }
  void Advance(std::chrono::nanoseconds time) {
    Require(Need::kTime);
    CheckMoved(rdmaemu_advance(static_cast<uint64_t>(time.count())));
  }
  void RunUntilIdle() {
    Require(Need::kTime);
    CheckMoved(rdmaemu_run_until_idle());
  }

 private:
  Embedding& Embedded() {
    Require(Need::kHosts);
    return *embedded_;
  }
  void CheckMoved(int result) const {
    if (backend_ == Backend::kHost && result == -EOPNOTSUPP) Skip(rdmaemu_last_error());
    Checked(result);
  }
  // Names and addresses in the options are for an embedded host. Elsewhere the test needs as many
  // devices.
  void SkipWithoutDevices() {
    const size_t wanted = devices_.size();
    // Runs once per process, because the search makes calls that rules count.
    static const std::vector<TestDevice> found = detail::FindDevices();
    const auto usable =
        static_cast<size_t>(std::count_if(found.begin(), found.end(), [](const TestDevice& each) {
          return !each.addresses.empty();
        }));
    devices_ = found;
    if (usable < wanted) {
      Skip("the test needs " + std::to_string(wanted) + " RDMA devices with addresses; there are " +
           std::to_string(usable));
    }
  }

  Backend backend_;
  std::vector<TestDevice> devices_;
  std::optional<Embedding> embedded_;
  std::optional<RulesBefore> rules_before_;
};

// A test's hosts, open as long as the object lives. The default is one embedded host with the
// virtual clock. The message of a failed test shows the timeline of all hosts. A framework's
// fixture derives from this class. The hosts end after the members of derived classes.
class Fixture {
 protected:
  explicit Fixture(const EmbeddingOptions& options = {}) : host(options) {
    FailureCount::Get().BeginTest();
  }
  ~Fixture() {
    const bool is_unwinding = std::uncaught_exceptions() > exceptions_before_;
    const bool is_skipped = is_unwinding && FailureCount::Get().is_skipping();
    const bool has_failed = FailureCount::Get().failures() > failures_before_;
    if (has_failed || (is_unwinding && !is_skipped)) TellTimeline();
  }
  Fixture(const Fixture&) = delete;
  Fixture& operator=(const Fixture&) = delete;

  // The name of the n-th device, and the addresses by which rdma_bind_addr reaches the device. The
  // first address is an IPv4 address where the device has one. Devices are those of the first host,
  // or of the machine. A test that uses these names and addresses runs on every backend.
  const std::string& DeviceName(size_t n = 0) const { return NthDevice(n).name; }
  const std::string& Address(size_t device = 0, size_t n = 0) const {
    const TestDevice& at = NthDevice(device);
    if (n >= at.addresses.size()) Lack(n + 1, "addresses of " + at.name, at.addresses.size());
    return at.addresses[n];
  }

  // Adds another machine: AddHost("b", {{.addresses = "10.0.0.2"}}). Embedded hosts only.
  void AddHost(const std::string& name, const std::vector<DeviceOptions>& devices) {
    HostOptions options;
    options.name = name;
    options.devices = devices;
    host.Add(options);
  }
  // Runs `body` on that machine and returns its result. Objects that `body` creates belong to that
  // machine.
  template <class Body>
  decltype(auto) On(const std::string& name, Body&& body) {
    const OnHost guard(name);
    return std::forward<Body>(body)();
  }

  TestHost host;

 private:
  const TestDevice& NthDevice(size_t n) const {
    const std::vector<TestDevice>& devices = host.devices();
    if (n >= devices.size()) Lack(n + 1, "RDMA devices", devices.size());
    return devices[n];
  }
  // On an embedded host the test itself chose the devices, so the test is wrong.
  [[noreturn]] void Lack(size_t wanted, const std::string& what, size_t there) const {
    const std::string why = "the test needs " + std::to_string(wanted) + " " + what +
                            "; there are " + std::to_string(there);
    if (host.backend() == Backend::kEmbedded) throw std::out_of_range(why);
    Skip(why);
  }
  void TellTimeline() const {
    if (host.backend() != Backend::kEmbedded) return;
    const auto at_failure = FailureCount::Get().first_timeline();
    try {
      const std::string report = WriteReport();
      const bool is_closed = at_failure && rdmaemu_timeline(nullptr, 0) < 0;  // by the test
      const std::string now = is_closed ? std::string() : Timeline();
      const FailureTimeline shown =
          at_failure ? JoinTimelines(*at_failure, now) : FailureTimeline{now, now.size()};
      TheFramework().tell(
          "what the host did, both sides (seconds, host, process, kind, object):\n" +
          TimelineAround(shown.text, shown.byte, report) + ReportLine(report));
    } catch (const std::exception& failure) {  // in a destructor
      std::fprintf(stderr, "rdmaemu: the timeline cannot be shown: %s\n", failure.what());
    }
  }

  const uint64_t failures_before_ = FailureCount::Get().failures();
  const int exceptions_before_ = std::uncaught_exceptions();
};

}  // namespace rdmaemu::testing
