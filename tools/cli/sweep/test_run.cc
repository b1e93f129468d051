#include "tools/cli/sweep/test_run.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "emulator/runtime/clock.h"
#include "tools/cli/ab.h"
#include "tools/cli/commands.h"
#include "tools/cli/environment.h"
#include "tools/cli/execute.h"
#include "tools/cli/spawn.h"
#include "tools/cli/sweep/left_processes.h"
#include "tools/cli/sweep/shell_words.h"
#include "tools/cli/sweep/threads.h"

namespace rdmaemu::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kHost = "sweep";
constexpr const char* kCallSites = "call-sites";  // the directory in that of a run
// The files of the hosts' traces: of the only host or the client's, and of the server's.
constexpr const char *kHostTrace = "host.jsonl", *kServerTrace = "server-host.jsonl";

bool WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return bool(file);
}

// In the environment of a run's processes: the directory of the run.
constexpr const char* kRunVariable = "RDMAEMU_SWEEP_RUN";

// Starts a program whose output is a file, and whose end follows that of this process. The
// libraries record the sites of calls in a directory. Empty: they record nothing.
pid_t StartInto(const std::string& output, const std::vector<std::string>& command,
                const std::string& directory, const std::string& call_sites) {
  const pid_t parent = getpid(), child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kRunFailed);
  // A test may send a signal to its process group (kill 0).
  setpgid(0, 0);
  setenv(kRunVariable, directory.c_str(), 1);
  const int in = open("/dev/null", O_RDONLY);
  const int out = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (in < 0 || out < 0) _exit(kRunFailed);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  if (!call_sites.empty()) setenv("RDMAEMU_CALL_SITES", call_sites.c_str(), 1);
  Execute(command);
}

std::string Tail(const std::string& path, size_t bytes) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  const auto size = static_cast<size_t>(file.tellg());
  file.seekg(static_cast<std::streamoff>(size > bytes ? size - bytes : 0));
  return {std::istreambuf_iterator<char>(file), {}};
}

void ReadFindings(const std::string& path, std::vector<CheckFinding>& findings) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("rule")) continue;
    CheckFinding finding;
    finding.rule = json.value("rule", "");
    finding.title = json.value("title", "");
    finding.place = json.value("place", "");
    finding.text = finding.rule + ": " + finding.title;
    if (!finding.place.empty()) {
      finding.text += ", at " + finding.place;
    }
    for (const Json& object : json.value("objects", Json::array())) {
      finding.text += "; " + object.value("name", "") + " of " + object.value("made_by", "");
      const Json sites = object.value("created_at", Json::array());
      if (!sites.empty()) finding.text += " at " + sites[0].get<std::string>();
    }
    findings.push_back(std::move(finding));
  }
}

// The words of `run` that every run of a sweep has.
std::vector<std::string> RunWords(const SweptTest& test, const std::string& binary,
                                  const std::string& host) {
  std::vector<std::string> words = {binary, "run", "--host", host, "--seed", test.seed};
  if (!test.is_on_system) words.insert(words.end(), {"--private", "--clock", "virtual"});
  words.insert(words.end(), test.host_options.begin(), test.host_options.end());
  return words;
}

void SetEnd(RunResult& result, int wait_status, const std::string& of) {
  int status = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
  const std::string who = of.empty() ? "" : of + ": ";
  // A shell, and `run`, exit with 128 + n when signal n ended their program.
  const bool is_signal = status > 128 && status < 128 + NSIG;
  result.end = is_signal ? RunResult::End::kSignal : RunResult::End::kStatus;
  result.status = is_signal ? status - 128 : status;
  result.why = who + (is_signal ? "signal " : "exit status ") + std::to_string(result.status);
}

// A host on the system backend is not private, so each run side by side has a name of its own.
std::string HostOf(const SweptTest& test, const std::string& directory) {
  if (test.has_two_hosts) return kClient;
  if (!test.is_on_system) return kHost;
  return std::string(kHost) + "-" + std::to_string(getpid()) + "-" +
         fs::path(directory).filename().string();
}

// The programs of a pair. With two hosts, each program has a directory of its own for its call
// sites, because each host numbers its processes. Empty: the sites are not recorded.
std::vector<fault::Program> ProgramsOf(const SweptTest& test, const std::string& call_sites) {
  std::vector<fault::Program> programs = {{kServer, test.server, fault::Until::kListens},
                                          {kClient, test.client, fault::Until::kEnded}};
  if (call_sites.empty() || !test.has_two_hosts) return programs;
  for (fault::Program& program : programs) {
    const std::string directory = call_sites + "/" + program.name;
    std::error_code error;
    fs::create_directories(directory, error);
    program.command =
        "export RDMAEMU_CALL_SITES=" + QuotedForShell(directory) + "; " + program.command;
  }
  return programs;
}

// The statuses of a server and a client, as AbPrograms writes them. The worse one counts. A server
// that had no connection may wait for another client after its client has failed.
// `ends_program`: a rule may have ended one of them by SIGKILL. Then only the other one counts.
bool SetEndOfPair(RunResult& result, const std::string& path, bool ends_program) {
  std::ifstream file(path);
  const Json statuses = Json::parse(file, nullptr, false);
  if (!statuses.is_array() || statuses.empty()) return false;
  SetEnd(result, 0, "");
  const bool client_failed = statuses.back().at(1) != "0";
  const std::string_view connected = ends_program ? "event.established" : "event.connect_request";
  const bool was_reached = std::ranges::any_of(
      result.host.count, [&](const auto& each) { return WithoutHost(each.first) == connected; });
  const bool may_wait = client_failed && !was_reached;
  const auto is_killed = [ends_program](const RunResult& of) {
    return ends_program && of.end == RunResult::End::kSignal && of.status == SIGKILL;
  };
  for (const Json& each : statuses) {
    const std::string name = each.at(0), text = each.at(1);
    RunResult of = result;
    if (text == "stopped") {
      result.server_was_stopped = !may_wait;
      continue;
    }
    if (text.starts_with("signal ")) {
      SetEnd(of, std::stoi(text.substr(7)), name);
    } else if (text != "not started" && text != "0") {
      SetEnd(of, std::stoi(text) << 8, name);
    }
    if (is_killed(of)) continue;
    const bool is_worse = of.end > result.end || (of.end == result.end && result.status == 0);
    if (is_worse) result = of;
  }
  return true;
}

}  // namespace

tl::expected<TestRun, std::string> TestRun::Start(const SweptTest& test, const SweepCase& one,
                                                  const std::string& directory, Duration limit,
                                                  const std::string& report,
                                                  bool records_call_sites) {
  std::error_code error;
  fs::remove_all(directory, error);
  fs::create_directories(directory, error);
  TestRun run;
  run.test_ = test;
  run.ends_program_ = one.EndsProgram();
  run.report_ = report;
  run.directory_ = directory;
  if (error || !WriteFile(run.File("rules.toml"), WitnessRules(test.is_on_system) + one.Rules())) {
    return tl::unexpected("cannot write " + run.File("rules.toml") + ": " + std::strerror(errno) +
                          "; give --report a directory that can be written");
  }
  std::vector<std::string> words = RunWords(test, BinaryPath(), HostOf(test, directory));
  const auto add_files = [&](const char* trace) {
    words.insert(words.end(), {"--scenario", run.File("rules.toml"), "--trace", run.File(trace)});
    if (!report.empty() && !test.is_on_system) {
      words.insert(words.end(), {"--report", report, "--report-always"});
    }
  };
  if (test.has_two_hosts) words.insert(words.end(), {"--address", test.client_address});
  add_files(kHostTrace);
  if (test.has_checks && !test.is_pair()) {
    words.insert(words.end(), {"--check", "--check-json", run.File("checks.jsonl")});
  }
  if (!report.empty() && test.is_on_system) {
    fs::create_directories(report, error);
    if (!test.is_pair()) {  // each program of a pair has a trace of its own
      words.insert(words.end(), {"--program-trace", report + "/program.jsonl"});
    }
  }
  const std::string call_sites = records_call_sites ? run.File(kCallSites) : "";
  if (records_call_sites) fs::create_directory(call_sites, error);
  words.push_back("--");
  if (test.has_two_hosts) {
    // This `run` keeps the server's host until the test ends, as the outer one keeps the client's.
    const std::vector<std::string> inner = RunWords(test, BinaryPath(), kServer);
    std::ranges::copy_if(inner, std::back_inserter(words),
                         [](const std::string& word) { return word != "--private"; });
    words.insert(words.end(), {"--address", test.server_address});
    add_files(kServerTrace);
    words.push_back("--");
  }
  if (test.is_pair()) {
    std::map<std::string, std::string> hosts;
    if (test.has_two_hosts) hosts = {{kServer, kServer}, {kClient, kClient}};
    const AbProgramsRequest programs{.backend = test.is_on_system ? "system" : "emulator",
                                     .device = test.device,
                                     .timeout = test.listen_timeout,
                                     .traces = run.File("pair"),
                                     .end_timeout = test.end_timeout,
                                     .hashes_payloads = false,
                                     .hosts = hosts,
                                     .has_checks = test.has_checks,
                                     .programs = ProgramsOf(test, call_sites)};
    if (!WriteRequest(programs, run.File("pair.request"))) {
      return tl::unexpected("cannot write " + run.File("pair.request"));
    }
    words.insert(words.end(), {BinaryPath(), "ab-programs", run.File("pair.request")});
  } else {
    words.insert(words.end(), test.command.begin(), test.command.end());
  }
  fflush(nullptr);
  run.process_ = StartInto(run.File("output"), words, directory, call_sites);
  if (run.process_ < 0) {
    return tl::unexpected(std::string("cannot start a process: ") + std::strerror(errno));
  }
  run.pidfd_.Reset(static_cast<int>(syscall(SYS_pidfd_open, run.process_, 0)));
  run.began_ = runtime::RealNow();
  run.deadline_ = run.began_ + limit;
  return run;
}

std::optional<RunResult> TestRun::Poll(Time now) {
  int status = 0;
  if (waitpid(process_, &status, WNOHANG) == process_) return Result(status, now);
  const bool is_late = now >= deadline_;
  std::error_code error;
  for (const char* const name : {"output", kHostTrace, kServerTrace}) {
    const uintmax_t bytes = fs::file_size(File(name), error);
    if (error || bytes <= kMaxFileBytes || ends_asked_ > 0) continue;
    const std::string limit = std::to_string(kMaxFileBytes >> 20) + " MiB";
    why_ended_ = name == std::string("output")
                     ? "its output is larger than " + limit
                     : "the record of its calls and events is larger than " + limit +
                           "; sweep a run with fewer messages";
    EndPrograms(now);
    return std::nullopt;
  }
  if (is_late) EndPrograms(now);
  return std::nullopt;
}

// `run` must end by itself, because it stops its host and removes its files. Its programs get
// SIGTERM, then SIGKILL. `run` gets SIGKILL if that does not help.
void TestRun::EndPrograms(Time now) {
  std::vector<pid_t> programs = ProcessTree(process_);
  std::erase(programs, process_);
  if (ends_asked_++ == 0 && !report_.empty()) threads_ = WaitingThreads(programs);
  const int number = ends_asked_ == 1 ? SIGTERM : SIGKILL;
  for (const pid_t program : programs) kill(program, number);
  if (ends_asked_ > 2 || (ends_asked_ == 1 && programs.empty())) kill(process_, number);
  deadline_ = now + kEndWithin;
}

RunResult TestRun::Result(int wait_status, Time now) const {
  RunResult result;
  result.took = now - began_;
  result.output = Tail(File("output"), kMaxOutputBytes);
  result.threads = threads_;
  for (const char* const file : {"checks.jsonl", "pair.server.checks", "pair.client.checks"}) {
    ReadFindings(File(file), result.findings);
  }
  result.host = Records();
  for (const char* const program : {"server", "client"}) {
    if (report_.empty() || !test_.is_pair()) break;
    std::error_code error;
    fs::copy_file(File("pair.") + program, report_ + "/" + program + ".jsonl", error);
  }
  result.processes_left = EndLeftProcesses(std::string(kRunVariable) + "=" + directory_);
  SetEnd(result, wait_status, "");
  // The test itself may have the other statuses of `run`: the runs without faults found it.
  const bool not_run = result.end == RunResult::End::kStatus && result.status == kRunFailed;
  if (ends_asked_ > 0) {
    result.end = RunResult::End::kTimeLimit;
    result.why = why_ended_.empty() ? "it did not end in time" : why_ended_;
  } else if (not_run ||
             (test_.is_pair() && !SetEndOfPair(result, File("pair.status"), ends_program_))) {
    result.end = RunResult::End::kNotRun;
    result.why = "the test could not be run (status " + std::to_string(result.status) + ")";
  }
  return result;
}

HostRecords TestRun::Records() const {
  const auto read = [&](const char* trace, const std::string& call_sites) {
    const CallSites sites = CallSites::Read(File(kCallSites) + call_sites);
    return ReadHostRecords(File(trace), sites).value_or(HostRecords());
  };
  if (!test_.has_two_hosts) return read(kHostTrace, "");
  return Merge({{kServer, read(kServerTrace, std::string("/") + kServer)},
                {kClient, read(kHostTrace, std::string("/") + kClient)}});
}

std::vector<std::string> SweptTest::HostOptions() const {
  std::vector<std::string> options = host_options;
  if (has_two_hosts) {
    options.insert(options.end(), {"--two-hosts", "--server-address", server_address,
                                   "--client-address", client_address});
  }
  return options;
}

std::string ReproduceCommand(const SweptTest& test, const SweepCase& one,
                             const std::string& report) {
  if (!test.is_pair() && !report.empty()) {
    std::vector<std::string> words = RunWords(test, "rdmaemu", kHost);
    if (test.has_checks) words.push_back("--check");
    words.insert(words.end(), {"--scenario", report + "/rules.toml", "--"});
    words.insert(words.end(), test.command.begin(), test.command.end());
    return JoinedForShell(words);
  }
  // The results that the case is from must stay.
  std::vector<std::string> words = {
      "rdmaemu", "sweep",   "--case",   one.Id(),
      "--seed",  test.seed, "--report", (report.empty() ? "rdmaemu-sweep" : report) + "-again"};
  if (!test.has_checks) words.push_back("--no-check");
  const std::vector<std::string> options = test.HostOptions();
  words.insert(words.end(), options.begin(), options.end());
  if (test.is_pair()) {
    words.insert(words.end(), {"--timeout", test.listen_timeout, "--server", test.server,
                               "--client", test.client});
  } else {
    words.push_back("--");
    words.insert(words.end(), test.command.begin(), test.command.end());
  }
  return JoinedForShell(words);
}

}  // namespace rdmaemu::cli
