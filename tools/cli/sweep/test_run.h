// Runs a test once, on a private host or the machine's own devices, with the rules of one case.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "emulator/base/time.h"
#include "emulator/runtime/unique_fd.h"
#include "tools/cli/sweep/cases.h"
#include "tools/cli/sweep/sites.h"

namespace rdmaemu::cli {

// The programs of a pair, and their hosts with SweptTest::has_two_hosts.
inline constexpr const char *kServer = "server", *kClient = "client";

// The test: a command, or a server and a client as lines for a shell.
struct SweptTest {
  std::vector<std::string> command;
  std::string server, client;
  std::string listen_timeout = "3s";      // for the server to listen, and to end after the client
  std::vector<std::string> host_options;  // of `run`, such as --device
  // How long the server may take to end after the client; empty: listen_timeout.
  std::string end_timeout = {};
  std::string seed = "1";
  bool has_checks = true;
  // On --backend system, which `host_options` then have, too. `device` is one of the machine's.
  bool is_on_system = false;
  std::string device = {};
  // The server and the client run on a host each, which share one time.
  bool has_two_hosts = false;
  std::string server_address = "127.0.1.1", client_address = "127.0.1.2";

  // The options of `sweep` that select the hosts.
  std::vector<std::string> HostOptions() const;
  bool is_pair() const { return !server.empty(); }
};

// A finding of the usage checks (docs/checks.md).
struct CheckFinding {
  std::string rule, title, place;
  std::string text;  // for people: title, place, and the objects with their creation sites

  bool operator==(const CheckFinding& other) const {
    return rule == other.rule && place == other.place;
  }
};

struct RunResult {
  enum class End { kStatus, kSignal, kTimeLimit, kNotRun };
  End end = End::kNotRun;
  int status = 0;                   // or the number of the signal
  bool server_was_stopped = false;  // a pair's server did not end by itself after the client
  std::string why;                  // the end as text: "exit status 3", "server: signal 11"
  HostRecords host;
  std::vector<CheckFinding> findings;
  size_t processes_left = 0;         // that the test left running; the sweep has ended them
  std::string output;                // the last kMaxOutputBytes
  std::vector<std::string> threads;  // at the time limit: what each thread waited for
  Duration took{};
};

class TestRun {
 public:
  static constexpr size_t kMaxOutputBytes = 64 * 1024;
  // Limit of the file of the output, and of the host's trace. A test that exceeds the limit is
  // ended.
  static constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;
  // How long the programs have to end after SIGTERM, and `run` after that.
  static constexpr Duration kEndWithin = std::chrono::seconds(2);

  // Starts the test in the directory, which it makes. A `report` directory gets what `run --report`
  // leaves (on --backend system a program trace), and the result then has the threads at the time
  // limit. `records_call_sites`: the result's moments have their stacks. Fails if no process can be
  // started.
  static tl::expected<TestRun, std::string> Start(const SweptTest& test, const SweepCase& one,
                                                  const std::string& directory, Duration limit,
                                                  const std::string& report = {},
                                                  bool records_call_sites = false);
  TestRun(TestRun&&) = default;
  TestRun& operator=(TestRun&&) = default;

  // A descriptor that is readable when the run has ended.
  int fd() const { return pidfd_.get(); }
  // Returns when Poll must be called again.
  Time deadline() const { return deadline_; }
  // Ends the programs if the time limit has passed, or if they have written too much. Returns the
  // result when the run has ended.
  std::optional<RunResult> Poll(Time now);
  // Ends the programs now.
  void Stop(Time now) { EndPrograms(now); }

 private:
  TestRun() = default;
  void EndPrograms(Time now);
  RunResult Result(int wait_status, Time now) const;
  HostRecords Records() const;
  std::string File(const std::string& name) const { return directory_ + "/" + name; }

  SweptTest test_;
  std::string directory_;
  pid_t process_ = 0;
  runtime::UniqueFd pidfd_;
  Time began_, deadline_;
  std::string report_;
  bool ends_program_ = false;  // a rule of the case ends a program
  int ends_asked_ = 0;         // how often EndPrograms was called
  std::string why_ended_;
  std::vector<std::string> threads_;
};

// Returns a command line that shows the case again, quoted for a shell. `report` is the absolute
// directory of the case's report, with its rules.toml. Empty: there is none.
std::string ReproduceCommand(const SweptTest& test, const SweepCase& one,
                             const std::string& report);

}  // namespace rdmaemu::cli
