// Runs the programs of a test on one backend, for `rdmaemu ab`.
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "emulator/fault/programs.h"
#include "emulator/runtime/host_client.h"
#include "emulator/runtime/unique_fd.h"
#include "tools/cli/ab.h"
#include "tools/cli/commands.h"
#include "tools/cli/duration.h"
#include "tools/cli/environment.h"
#include "tools/cli/spawn.h"

namespace rdmaemu::cli {
namespace {

using Clock = std::chrono::steady_clock;

// The pause between two checks of a process doubles up to kLongestLook.
constexpr auto kFirstLook = std::chrono::milliseconds(2);
constexpr auto kLongestLook = std::chrono::milliseconds(100);

// The interval between two signals to a program that must end.
constexpr auto kStopInterval = std::chrono::seconds(1);

// Calls `holds` until it returns true or the time is `end`. Returns the last result of `holds`.
template <class Holds>
bool LookUntil(Clock::time_point end, Holds holds) {
  for (Clock::duration pause = kFirstLook; !holds();
       pause = std::min<Clock::duration>(pause * 2, kLongestLook)) {
    const auto left = end - Clock::now();
    if (left <= Clock::duration::zero()) return false;
    std::this_thread::sleep_for(std::min(pause, left));
  }
  return true;
}

// Returns how many ids listen on the host that RDMAEMU_HOST names.
size_t ListenersOnHost() {
  const char* const name = std::getenv("RDMAEMU_HOST");
  const auto registry = runtime::Registry::Open();
  if (name == nullptr || !registry) return 0;
  auto client = runtime::HostClient::Connect(registry->SocketPath(name));
  if (!client) return 0;
  const Result<std::string> status = client->Status();
  const auto json = status ? nlohmann::json::parse(*status, nullptr, false) : nlohmann::json();
  return json.is_object() ? json.value("listeners", nlohmann::json::array()).size() : 0;
}

// The number of SIGTERM signals that a program gets before SIGKILL.
constexpr int kMostStops = 5;

// The programs that a `run` has started. A pidfd names the same process forever, even after the
// process has ended and its pid belongs to another process.
class Started {
 public:
  // Adds the current programs. Adds `run` itself only if it has started no program, because `run`
  // ends when its program ends.
  void Look(pid_t run) {
    std::vector<pid_t> tree = ProcessTree(run);
    if (tree.size() > 1) tree.erase(tree.begin());
    for (const pid_t process : tree) {
      auto [it, is_new] = processes_.try_emplace(process);
      if (is_new) it->second.Reset(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
    }
  }
  void Send(int number) const {
    for (const auto& [pid, process] : processes_) {
      if (!process) {
        kill(pid, number);  // the system has no pidfds
      } else {
        (void)syscall(SYS_pidfd_send_signal, process.get(), number, nullptr, 0);
      }
    }
  }
  bool HaveEnded() const {
    return std::ranges::all_of(processes_, [](const auto& each) {
      pollfd end{each.second.get(), POLLIN, 0};
      return !each.second || poll(&end, 1, 0) > 0;
    });
  }

 private:
  std::map<pid_t, runtime::UniqueFd> processes_;
};

// Sends SIGTERM to all programs that a `run` has started, until they and the `run` have ended. Each
// program gets the signal, because a shell need not forward it. A `run` that is preparing its
// program starts the program after the signal, so the signal is repeated. A program that ignores
// the signals gets SIGKILL.
void StopRun(pid_t run) {
  Started started;
  bool run_has_ended = false;
  const auto have_ended = [&] {
    run_has_ended = run_has_ended || HasEnded(run).has_value();
    return run_has_ended && started.HaveEnded();
  };
  for (int stops = 1;; stops++) {
    if (!run_has_ended) started.Look(run);
    started.Send(stops > kMostStops ? SIGKILL : SIGTERM);
    if (LookUntil(Clock::now() + kStopInterval, have_ended)) return;
  }
}

// Starts the programs in their order, waits for them, and stops the servers.
class ProgramsRunner {
 public:
  ProgramsRunner(const AbProgramsRequest& request, Duration limit, Duration end_limit)
      : request_(request), limit_(limit), end_limit_(end_limit) {}

  // Returns the exit status of `ab-programs`.
  int Run() {
    for (const fault::Program& program : request_.programs) {
      if (int status = Start(program); status != 0) {
        StopAll();
        return status;
      }
      if (is_over_) break;
    }
    // The test is over if a server ended before it listened.
    if (!is_over_) AwaitAll();
    return End();
  }

 private:
  struct Running {
    const fault::Program* program;
    pid_t process;
    std::optional<int> end = {};  // its wait status
  };

  // Starts a program and waits for the condition that it names. Sets is_over_ if the next program
  // must not start.
  int Start(const fault::Program& program) {
    // In tests, an emulated host plays the machine.
    const bool is_host = request_.backend == "emulator" || HasSystemLibraries();
    const size_t listeners = is_host ? ListenersOnHost() : 0;
    const pid_t process = Spawn(RunCommand(program));
    if (process < 0) {
      return Fail(kRunFailed, std::string("cannot start a process: ") + std::strerror(errno));
    }
    Running& started = running_.emplace_back(Running{&program, process});
    if (program.until == fault::Until::kEnded) started.end = WaitFor(process);
    if (program.until != fault::Until::kListens) return 0;
    bool listens = false;
    LookUntil(Clock::now() + limit_, [&] {
      started.end = HasEnded(process);
      if (started.end) return true;
      const std::vector<pid_t> tree = ProcessTree(process);
      listens = ListensOnTcp(tree) ||
                (is_host ? ListenersOnHost() > listeners : ListensOnKernelDevice(tree));
      return listens;
    });
    is_over_ = started.end.has_value();
    if (listens || is_over_) return 0;
    return Fail(kTimedOut, "the " + program.name + " did not listen in " + request_.timeout + ": " +
                               program.command + "; give --timeout more");
  }

  std::vector<std::string> RunCommand(const fault::Program& program) const {
    std::vector<std::string> run = {BinaryPath(), "run", "--backend", request_.backend};
    if (request_.backend == "emulator") {
      const char* const host = std::getenv("RDMAEMU_HOST");
      const auto own = request_.hosts.find(program.name);
      run.insert(run.end(), {"--host", own != request_.hosts.end() ? own->second
                                       : host == nullptr           ? "default"
                                                                   : host});
    }
    // The outer `run` has chosen the emulator's device.
    if (!request_.device.empty() && request_.backend == "system") {
      run.insert(run.end(), {"--device", request_.device});
    }
    run.insert(run.end(), {"--program-trace", request_.traces + "." + program.name});
    if (request_.hashes_payloads) run.push_back("--payload-hashes");
    if (request_.has_checks) {
      run.insert(run.end(),
                 {"--check", "--check-json", request_.traces + "." + program.name + ".checks"});
    }
    run.insert(run.end(), {"--", "/bin/sh", "-c", program.command});
    return run;
  }

  // Waits without a limit for the programs that do not listen. Then waits a limited time for the
  // others.
  void AwaitAll() {
    for (Running& each : running_) {
      if (each.program->until == fault::Until::kStarted) each.end = WaitFor(each.process);
    }
    LookUntil(Clock::now() + end_limit_, [&] {
      return std::ranges::all_of(running_, [](Running& each) { return HasEndedNow(each); });
    });
  }

  // Stops the programs that still run, and writes the exit statuses.
  int End() {
    auto statuses = nlohmann::ordered_json::array();
    for (Running& each : running_) {
      if (!HasEndedNow(each)) StopRun(each.process);
      statuses.push_back({each.program->name, each.end ? StatusText(*each.end) : "stopped"});
    }
    for (size_t i = running_.size(); i < request_.programs.size(); i++) {
      statuses.push_back({request_.programs[i].name, "not started"});
    }
    std::ofstream file(request_.traces + ".status");
    file << statuses.dump() << "\n";
    file.close();
    return file ? 0 : Fail(kRunFailed, "cannot write " + request_.traces + ".status");
  }

  static bool HasEndedNow(Running& running) {
    if (!running.end) running.end = HasEnded(running.process);
    return running.end.has_value();
  }

  void StopAll() {
    for (Running& each : running_) {
      if (!HasEndedNow(each)) StopRun(each.process);
    }
  }

  const AbProgramsRequest& request_;
  const Duration limit_, end_limit_;
  std::deque<Running> running_;
  bool is_over_ = false;
};

}  // namespace

bool WriteRequest(const AbProgramsRequest& request, const std::string& path) {
  nlohmann::json json = {{"backend", request.backend}, {"device", request.device},
                         {"timeout", request.timeout}, {"end_timeout", request.end_timeout},
                         {"traces", request.traces},   {"hashes_payloads", request.hashes_payloads},
                         {"hosts", request.hosts},     {"has_checks", request.has_checks}};
  for (const fault::Program& each : request.programs) {
    json["programs"].push_back({each.name, each.command, fault::UntilName(each.until)});
  }
  std::ofstream file(path);
  file << json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  file.close();
  return bool(file);
}

int AbPrograms(const std::string& path) {
  AbProgramsRequest request;
  try {
    std::ifstream file(path);
    const auto json = nlohmann::json::parse(file);
    json.at("backend").get_to(request.backend);
    json.at("device").get_to(request.device);
    json.at("timeout").get_to(request.timeout);
    json.at("end_timeout").get_to(request.end_timeout);
    json.at("traces").get_to(request.traces);
    json.at("hashes_payloads").get_to(request.hashes_payloads);
    json.at("hosts").get_to(request.hosts);
    json.at("has_checks").get_to(request.has_checks);
    for (const auto& each : json.at("programs")) {
      request.programs.push_back(
          {each.at(0), each.at(1), fault::UntilOf(each.at(2).get<std::string>()).value()});
    }
  } catch (const std::exception& error) {
    return Fail(kUsage, std::string("ab-programs is for rdmaemu ab only: ") + error.what());
  }
  const std::optional<Duration> limit = ParseDuration(request.timeout);
  if (!limit) return Fail(kUsage, NotADuration(request.timeout));
  const std::string& end_timeout = request.end_timeout;
  const auto end_limit = end_timeout.empty() ? limit : ParseDuration(end_timeout);
  if (!end_limit) return Fail(kUsage, NotADuration(end_timeout));
  return ProgramsRunner(request, *limit, *end_limit).Run();
}

}  // namespace rdmaemu::cli
