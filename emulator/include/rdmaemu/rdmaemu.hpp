// rdmaemu.h for C++: hosts and fault rules that end with their scope, durations of <chrono>, and
// errors as exceptions. Header only.
#pragma once

#include <rdmaemu/rdmaemu.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace rdmaemu {

// The error of a failed function of rdmaemu.h. what() is rdmaemu_last_error().
class EmbeddingError : public std::runtime_error {
 public:
  explicit EmbeddingError(int error)
      : std::runtime_error(rdmaemu_last_error()), error_(error < 0 ? -error : error) {}
  // A positive errno.
  int error() const { return error_; }

 private:
  int error_;
};

// Throws EmbeddingError for a negative result. Returns any other result.
template <class Result>
Result Checked(Result result) {
  if (result < 0) throw EmbeddingError(static_cast<int>(result));
  return result;
}

// Features of the emulator that a test may need and a machine's own RDMA device lacks.
enum class Need { kRules, kHosts, kTime, kTimeline };

// The function that checks each need before its use. A test that runs on several backends
// (rdmaemu/backend.hpp) sets a function that throws where the backend lacks the need. nullptr: no
// checks.
inline std::atomic<void (*)(Need)> check_need{nullptr};
inline void Require(Need need) {
  if (auto* const check = check_need.load()) check(need);
}

// The function that ends a test as skipped for a rule that its backend cannot apply, with the
// reason. nullptr: such a rule is an error.
inline std::atomic<void (*)(const char*)> skip_refused{nullptr};

// A device of an embedded host.
struct DeviceOptions {
  std::string name = "rxe0";
  std::string profile = "rxe";
  std::string addresses = "127.0.0.1,::1";
};

// Options as in rdmaemu_options. An empty member selects the default. Each member has an
// initializer, so that a program can name only the members it sets: {.program_time = true}.
struct EmbeddingOptions {
  std::string name = {};
  std::vector<DeviceOptions> devices = {};
  std::string clock = "virtual";
  uint64_t seed = 1;
  std::string scenario_path = {}, trace_path = {}, pcap_path = {}, silent_nets = {},
              payload_shortcuts = {};
  std::string gateways = {};
  bool program_time = false;
  size_t report_bytes = 0;
};

// A host that is added to others. The host needs a name, and devices with addresses of its own.
struct HostOptions {
  std::string name = {};
  std::vector<DeviceOptions> devices = {};
  uint64_t seed = 0;  // 0: derived from the first host's seed
  std::string scenario_path = {}, trace_path = {}, pcap_path = {}, silent_nets = {},
              payload_shortcuts = {};
  std::string gateways = {};
};

// Calls `use` with the options converted to rdmaemu_options.
template <class Options, class Use>
int WithPlainOptions(const Options& options, const char* clock, Use&& use) {
  std::vector<rdmaemu_device> devices;
  for (const DeviceOptions& device : options.devices) {
    devices.push_back({device.name.c_str(), device.profile.c_str(), device.addresses.c_str()});
  }
  rdmaemu_options plain = {};
  plain.size = sizeof plain;
  plain.name = options.name.c_str();
  plain.devices = devices.data();
  plain.device_count = devices.size();
  plain.clock = clock;
  plain.seed = options.seed;
  plain.scenario_path = options.scenario_path.c_str();
  plain.trace_path = options.trace_path.c_str();
  plain.pcap_path = options.pcap_path.c_str();
  plain.silent_nets = options.silent_nets.c_str();
  plain.payload_shortcuts = options.payload_shortcuts.c_str();
  plain.gateways = options.gateways.c_str();
  return use(plain);
}

// The hosts of this process, open as long as the object lives: the first host and added hosts.
class Embedding {
 public:
  explicit Embedding(const EmbeddingOptions& options = {}) {
    Checked(WithPlainOptions(options, options.clock.c_str(), [&](rdmaemu_options& plain) {
      plain.program_time = options.program_time ? 1 : 0;
      plain.report_bytes = options.report_bytes;
      return rdmaemu_open(&plain);
    }));
  }
  ~Embedding() { rdmaemu_close(); }
  Embedding(const Embedding&) = delete;
  Embedding& operator=(const Embedding&) = delete;

  // Adds another machine to the same network.
  void Add(const HostOptions& options) {
    Checked(WithPlainOptions(
        options, nullptr, [](const rdmaemu_options& plain) { return rdmaemu_host_add(&plain); }));
  }
  // Powers the machine off. No peer is notified.
  void Remove(const std::string& name) { Checked(rdmaemu_host_remove(name.c_str())); }

  // The time since the first host was opened. All hosts share this time.
  std::chrono::nanoseconds now() const { return std::chrono::nanoseconds(Checked(rdmaemu_now())); }
  void Advance(std::chrono::nanoseconds time) {
    Checked(rdmaemu_advance(static_cast<uint64_t>(time.count())));
  }
  void RunUntilIdle() { Checked(rdmaemu_run_until_idle()); }
};

// Puts this thread on the named host as long as the object lives: OnHost guard("b").
class OnHost {
 public:
  explicit OnHost(const std::string& name) {
    Require(Need::kHosts);
    before_.resize(static_cast<size_t>(Checked(rdmaemu_host_entered(nullptr, 0))) + 1);
    Checked(rdmaemu_host_entered(before_.data(), before_.size()));
    Checked(rdmaemu_host_enter(name.c_str()));
  }
  ~OnHost() { rdmaemu_host_enter(before_.c_str()); }
  OnHost(const OnHost&) = delete;
  OnHost& operator=(const OnHost&) = delete;

 private:
  std::string before_;
};

// Returns the latest trace records as text.
inline std::string Timeline() {
  Require(Need::kTimeline);
  std::string text(static_cast<size_t>(Checked(rdmaemu_timeline(nullptr, 0))) + 1, '\0');
  Checked(rdmaemu_timeline(text.data(), text.size()));
  text.resize(
      std::strlen(text.c_str()));  // other threads may have replaced records by shorter ones
  return text;
}

// Returns the rule of that name. When the rule's host has ended (a rule with `crash = true`), only
// the count of firings is known, and `matched` is the same number. Returns nothing when there is no
// such rule, or when the rule ended with its host and never fired.
inline std::optional<rdmaemu_rule> FindRule(const std::string& name) {
  std::vector<rdmaemu_rule> rules(static_cast<size_t>(std::max(rdmaemu_rules(nullptr, 0), 0)));
  rdmaemu_rules(rules.data(), rules.size());
  for (const rdmaemu_rule& rule : rules) {
    if (rule.name == name) return rule;
  }
  const auto has_fired = [&](uint64_t times) {
    return rdmaemu_rule_wait(name.c_str(), times, /*timeout_ms=*/0) == 0;
  };
  if (!has_fired(1)) return std::nullopt;
  uint64_t fired = 1, too_many = 2;
  while (has_fired(too_many)) fired = std::exchange(too_many, 2 * too_many);
  while (too_many - fired > 1) {
    const uint64_t middle = fired + (too_many - fired) / 2;
    (has_fired(middle) ? fired : too_many) = middle;
  }
  rdmaemu_rule ended = {};
  name.copy(ended.name, sizeof ended.name - 1);
  ended.matched = ended.fired = fired;
  return ended;
}

// A fault rule, active as long as the object lives: Fault lost("at = \"cm.rtu\", first = 1, drop =
// true").
class Fault {
 public:
  explicit Fault(const std::string& rule) {
    Require(Need::kRules);
    char name[sizeof rdmaemu_rule::name];
    const int added = rdmaemu_rule_add(rule.c_str(), name, sizeof name);
    if (auto* const skip = skip_refused.load(); added == -EOPNOTSUPP && skip != nullptr) {
      skip(rdmaemu_last_error());
    }
    Checked(added);
    name_ = name;
  }
  ~Fault() {
    if (!name_.empty()) rdmaemu_rule_remove(name_.c_str());
  }
  Fault(Fault&& other) noexcept : name_(std::exchange(other.name_, {})) {}
  Fault(const Fault&) = delete;
  Fault& operator=(const Fault&) = delete;

  const std::string& name() const { return name_; }
  // Releases everything that a rule with hold = true holds now.
  void Release() { Checked(rdmaemu_rule_release(name_.c_str())); }
  // Blocks until the rule has fired `times` times. Throws ETIMEDOUT after `timeout` of the
  // machine's time.
  void Wait(uint64_t times = 1, std::chrono::milliseconds timeout = std::chrono::seconds(10)) {
    Checked(rdmaemu_rule_wait(name_.c_str(), times, static_cast<uint64_t>(timeout.count())));
  }
  // How many moments the rule matched, and in how many of them the rule fired. After the rule's
  // host has ended, matched() is fired().
  uint64_t matched() const { return Find().matched; }
  uint64_t fired() const { return Find().fired; }

 private:
  rdmaemu_rule Find() const {
    if (const auto found = FindRule(name_)) return *found;
    throw std::logic_error("the rule \"" + name_ + "\" was removed, or its host has ended");
  }

  std::string name_;
};

}  // namespace rdmaemu
