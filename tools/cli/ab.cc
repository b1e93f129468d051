#include "tools/cli/ab.h"

#include <unistd.h>

#include <sys/wait.h>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "emulator/runtime/host_setup.h"
#include "tools/cli/commands.h"
#include "tools/cli/duration.h"
#include "tools/cli/environment.h"
#include "tools/cli/spawn.h"
#include "tools/cli/system_host/decisions.h"
#include "tools/trace/select.h"

namespace rdmaemu::cli {
namespace {

namespace fs = std::filesystem;
using trace_tools::Trace;

constexpr const char* kAddressWord = "{address}";
constexpr const char* kHostName = "ab";  // the emulated host, in a separate registry

// A directory for traces: the user's, or a temporary one that the destructor removes.
class TraceDirectory {
 public:
  static runtime::OrMessage<TraceDirectory> Make(const std::string& keep) {
    TraceDirectory made;
    if (!keep.empty()) {
      std::error_code error;
      fs::create_directories(keep, error);
      if (error)
        return tl::unexpected("cannot make the directory " + keep + ": " + error.message());
      made.path_ = fs::absolute(keep).lexically_normal().string();
      return made;
    }
    std::string path = (fs::temp_directory_path() / "rdmaemu-ab-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) {
      return tl::unexpected("cannot make a directory " + path + ": " + std::strerror(errno));
    }
    made.path_ = made.removed_ = path;
    return made;
  }
  TraceDirectory(TraceDirectory&& other) noexcept
      : path_(std::move(other.path_)), removed_(std::exchange(other.removed_, {})) {}
  ~TraceDirectory() {
    std::error_code error;
    if (!removed_.empty()) fs::remove_all(removed_, error);
  }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  TraceDirectory() = default;
  std::string path_, removed_;
};

struct SideRun {
  std::string trace;                                          // a file
  std::vector<std::pair<std::string, std::string>> statuses;  // of the test or programs
};

std::string WithAddress(std::string text, const AbSide& side) {
  const std::string address =
      side.address.empty() && side.backend == "emulator" ? "127.0.0.1" : side.address;
  for (size_t at = 0; (at = text.find(kAddressWord, at)) != text.npos; at += address.size()) {
    text.replace(at, std::strlen(kAddressWord), address);
  }
  return text;
}

// Writes the lines of several traces to `into`, sorted by time. Removes `files`.
runtime::OrMessage<void> MergeTraces(const std::vector<std::string>& files,
                                     const std::string& into) {
  std::vector<std::unique_ptr<Trace>> traces;
  std::vector<Trace*> loaded;
  for (const std::string& file : files) {
    if (!fs::exists(file)) continue;  // the program was not started
    auto trace = LoadTrace(file);
    if (!trace) return tl::unexpected(trace.error());
    loaded.push_back(trace->get());
    traces.push_back(std::move(*trace));
  }
  std::ofstream out(into, std::ios::binary);
  for (const trace_tools::Record& record : trace_tools::Merge(loaded)) out << record.text << "\n";
  out.close();
  if (!out) return tl::unexpected("cannot write " + into + ": " + std::strerror(errno));
  for (const std::string& file : files) fs::remove(file);
  return {};
}

// Runs the test on one backend and returns its trace and exit statuses.
class SideRunner {
 public:
  SideRunner(const AbRequest& request, const std::vector<fault::Program>& programs,
             const AbSide& side, std::string name, const TraceDirectory& directory)
      : request_(request),
        programs_(programs),
        side_(side),
        name_(std::move(name)),
        directory_(directory) {}

  runtime::OrMessage<SideRun> Run() {
    fprintf(stderr, "note: the test runs on %s (%s)\n", name_.c_str(), side_.backend.c_str());
    const bool has_programs = request_.test.empty();
    for (const char* left : {".jsonl", ".status"}) Remove(File(left));
    for (const fault::Program& program : programs_) Remove(File("." + program.name));
    if (has_programs && !WriteRequest(ProgramsRequest(), File(".request"))) {
      return tl::unexpected("cannot write " + File(".request") + ": " + std::strerror(errno));
    }
    const pid_t child = Spawn(has_programs ? ProgramsCommand() : TestCommand());
    if (child < 0) return Problem(std::string("cannot start a process: ") + std::strerror(errno));
    const int status = WaitFor(child);
    const bool not_run = WIFEXITED(status) && WEXITSTATUS(status) >= kTimedOut &&
                         WEXITSTATUS(status) <= kRunNotFound;
    const bool programs_failed = has_programs && status != 0;
    if (not_run || programs_failed) return Problem("the status was " + StatusText(status));
    auto run =
        has_programs ? OfPrograms() : SideRun{File(".jsonl"), {{"test", StatusText(status)}}};
    if (!run) return run;
    for (const auto& [what, text] : run->statuses) {
      fprintf(stderr, "note: on %s the %s ended with status %s\n", name_.c_str(), what.c_str(),
              text.c_str());
      if (std::ranges::find(kNotRun, text) != std::end(kNotRun)) {
        return Problem("the status of the " + what + " was " + text);
      }
    }
    return run;
  }

 private:
  static constexpr int kRunNotFound = 127;
  // Statuses of `run` when the program did not run.
  static constexpr std::string_view kNotRun[] = {"125", "126", "127"};

  std::string File(const std::string& suffix) const { return directory_.File(name_ + suffix); }
  static void Remove(const std::string& file) {
    std::error_code error;
    fs::remove(file, error);
  }
  tl::unexpected<std::string> Problem(const std::string& why) const {
    return tl::unexpected("the test could not be run on " + name_ + " (" + side_.backend +
                          "): " + why);
  }

  // Returns `run` with the options of the backend. On the emulator, the test has its own host
  // (--private).
  std::vector<std::string> RunOptions() const {
    std::vector<std::string> run = {BinaryPath(), "run", "--backend", side_.backend};
    if (side_.backend == "emulator") run.insert(run.end(), {"--private", "--host", kHostName});
    if (side_.backend == "emulator" && !side_.address.empty()) {
      run.insert(run.end(), {"--address", side_.address});
    }
    if (!side_.device.empty()) run.insert(run.end(), {"--device", side_.device});
    if (request_.scenario.empty()) return run;
    run.insert(run.end(), {"--scenario", request_.scenario});
    // On the system backend, the host of the rules is in the user's registry.
    if (side_.backend == "system") {
      run.insert(run.end(), {"--host", kHostName + ("-" + std::to_string(getpid()))});
    }
    return run;
  }

  std::vector<std::string> TestCommand() const {
    std::vector<std::string> run = RunOptions();
    run.insert(run.end(), {"--program-trace", File(".jsonl")});
    if (request_.hashes_payloads) run.push_back("--payload-hashes");
    run.push_back("--");
    for (const std::string& word : request_.test) run.push_back(WithAddress(word, side_));
    return run;
  }

  AbProgramsRequest ProgramsRequest() const {
    AbProgramsRequest programs{.backend = side_.backend,
                               .device = side_.device,
                               .timeout = request_.timeout,
                               .traces = directory_.File(name_),
                               .hashes_payloads = request_.hashes_payloads,
                               .programs = programs_};
    for (fault::Program& each : programs.programs) each.command = WithAddress(each.command, side_);
    return programs;
  }

  // Runs `ab-programs` inside a `run`, which has the host and the rules.
  std::vector<std::string> ProgramsCommand() const {
    const std::vector<std::string> programs = {BinaryPath(), "ab-programs", File(".request")};
    if (side_.backend == "system" && request_.scenario.empty()) return programs;
    std::vector<std::string> run = RunOptions();
    run.push_back("--");
    run.insert(run.end(), programs.begin(), programs.end());
    return run;
  }

  runtime::OrMessage<SideRun> OfPrograms() const {
    std::ifstream file(File(".status"));
    const auto statuses = nlohmann::json::parse(file, nullptr, false);
    if (!statuses.is_array()) return Problem("it left no status");
    SideRun run{File(".jsonl"), statuses};
    std::vector<std::string> traces;
    for (const fault::Program& program : programs_) traces.push_back(File("." + program.name));
    const auto merged = MergeTraces(traces, run.trace);
    if (!merged) return tl::unexpected(merged.error());
    Remove(File(".status"));
    Remove(File(".request"));
    return run;
  }

  const AbRequest& request_;
  const std::vector<fault::Program>& programs_;  // unless the request has a test
  const AbSide& side_;
  const std::string name_;
  const TraceDirectory& directory_;
};

// Returns the programs of the request. Returns none if the request has a test.
runtime::OrMessage<std::vector<fault::Program>> ProgramsOf(const AbRequest& request) {
  const bool is_pair = !request.server.empty();
  if (is_pair) {
    return std::vector<fault::Program>{{"server", request.server, fault::Until::kListens},
                                       {"client", request.client, fault::Until::kEnded}};
  }
  std::vector<fault::Program> programs;
  if (request.scenario.empty()) return programs;
  auto read = runtime::ReadScenarioPrograms(request.scenario);
  if (!read) return read;
  if (request.test.empty() && read->empty()) {
    return tl::unexpected(request.scenario +
                          " has no [[program]]; add the programs, or give a test behind --");
  }
  return request.test.empty() ? std::move(*read) : programs;
}

// Returns the first reason why the scenario's rules cannot apply. Returns nothing if they can.
std::optional<std::string> WrongRules(const AbRequest& request) {
  if (request.scenario.empty()) return std::nullopt;
  const auto rules = runtime::ReadScenario(request.scenario);
  if (!rules) return rules.error();
  const bool runs_b = request.b_trace.empty();
  const bool on_system = request.a.backend == "system" || (runs_b && request.b.backend == "system");
  for (const fault::Rule& rule : *rules) {
    if (!rule.match.host.empty()) {
      return request.scenario + ": rule \"" + rule.name + "\" is for the host " + rule.match.host +
             ", but ab runs all programs on one host; use program instead of host";
    }
    if (!on_system) continue;
    if (const auto wrong = WhyNotOnSystem(rule)) return request.scenario + ": " + *wrong;
  }
  return std::nullopt;
}

// Returns the mistake in the request, or nothing.
std::optional<std::string> Mistake(const AbRequest& request,
                                   const std::vector<fault::Program>& programs) {
  const bool is_pair = !request.server.empty() || !request.client.empty();
  if (is_pair && (request.server.empty() || request.client.empty())) {
    return "--server and --client need each other";
  }
  if (is_pair && !request.test.empty()) {
    return "give either a test behind --, or --server and --client";
  }
  if (!is_pair && request.test.empty() && request.scenario.empty()) {
    return "give a test behind --, as in: rdmaemu ab -- ./my_test; or --server and --client; or"
           " --scenario";
  }
  if (!ParseDuration(request.timeout)) return NotADuration(request.timeout);
  std::string words;
  for (const fault::Program& program : programs) words += program.command;
  for (const std::string& word : request.test) words += word;
  const bool has_address = words.find(kAddressWord) != words.npos;
  const bool runs_b = request.b_trace.empty();
  for (const auto& [side, option] :
       {std::pair(&request.a, "--a-address"), std::pair(&request.b, "--b-address")}) {
    if (side == &request.b && !runs_b) continue;
    if (!has_address || side->backend == "emulator" || !side->address.empty()) continue;
    return std::string("{address} has no value; give ") + option + " the address of the device";
  }
  if (!runs_b && (!request.b.device.empty() || !request.b.address.empty())) {
    return "--b-trace is an earlier run; omit --b-device and --b-address";
  }
  return std::nullopt;
}

}  // namespace

int Ab(const AbRequest& request) {
  // Reads the files before the test runs, so that an unreadable file is reported at once.
  const auto programs = ProgramsOf(request);
  if (!programs) return Fail(kRunFailed, programs.error());
  if (const auto mistake = Mistake(request, *programs)) return Fail(kUsage, *mistake);
  if (const auto wrong = WrongRules(request)) return Fail(kRunFailed, *wrong);
  auto acceptances = LoadAcceptances(request.compare.accept);
  if (!acceptances) return Fail(kRunFailed, acceptances.error());
  std::unique_ptr<Trace> b;
  if (!request.b_trace.empty()) {
    auto loaded = LoadTrace(request.b_trace);
    if (!loaded) return Fail(kRunFailed, loaded.error());
    b = std::move(*loaded);
  }
  const auto directory = TraceDirectory::Make(request.keep);
  if (!directory) return Fail(kRunFailed, directory.error());
  const auto run_a = SideRunner(request, *programs, request.a, "a", *directory).Run();
  if (!run_a) return Fail(kRunFailed, run_a.error());
  std::vector<RunStatus> statuses;
  if (b == nullptr) {
    const auto run_b = SideRunner(request, *programs, request.b, "b", *directory).Run();
    if (!run_b) return Fail(kRunFailed, run_b.error());
    for (size_t i = 0; i < run_a->statuses.size(); i++) {
      const auto& [what, of_a] = run_a->statuses[i];
      statuses.push_back({what, of_a, run_b->statuses[i].second});
    }
    auto loaded = LoadTrace(run_b->trace);
    if (!loaded) return Fail(kRunFailed, loaded.error());
    b = std::move(*loaded);
  }
  const auto a = LoadTrace(run_a->trace);
  if (!a) return Fail(kRunFailed, a.error());
  return CompareAndReport(**a, *b, statuses, std::move(*acceptances), request.compare, kRunFailed);
}

}  // namespace rdmaemu::cli
