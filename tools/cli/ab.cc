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

#include "tools/cli/commands.h"
#include "tools/cli/duration.h"
#include "tools/cli/environment.h"
#include "tools/cli/spawn.h"
#include "tools/trace/select.h"

namespace rdmaemu::cli {
namespace {

namespace fs = std::filesystem;
using trace_tools::Trace;

constexpr const char* kAddressWord = "{address}";
constexpr const char* kHostName = "ab";  // the emulated host, in a registry of its own

// A directory for traces. The directory is the user's, or a temporary one that the destructor
// removes.
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
  std::vector<std::pair<std::string, std::string>> statuses;  // of the test, or server and client
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
    if (!fs::exists(file)) continue;  // the client was not started
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
  SideRunner(const AbRequest& request, const AbSide& side, std::string name,
             const TraceDirectory& directory)
      : request_(request), side_(side), name_(std::move(name)), directory_(directory) {}

  runtime::OrMessage<SideRun> Run() {
    fprintf(stderr, "note: the test runs on %s (%s)\n", name_.c_str(), side_.backend.c_str());
    const bool is_pair = !request_.server.empty();
    for (const char* left : {".jsonl", ".server", ".client", ".status"}) {
      std::error_code error;
      fs::remove(File(left), error);
    }
    const pid_t child = Spawn(is_pair ? PairCommand() : TestCommand());
    if (child < 0) return Problem(std::string("cannot start a process: ") + std::strerror(errno));
    const int status = WaitFor(child);
    const bool not_run = WIFEXITED(status) && WEXITSTATUS(status) >= kTimedOut &&
                         WEXITSTATUS(status) <= kRunNotFound;
    const bool pair_failed = is_pair && status != 0;
    if (not_run || pair_failed) return Problem("the status was " + StatusText(status));
    auto run = is_pair ? OfPair() : SideRun{File(".jsonl"), {{"test", StatusText(status)}}};
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

  std::string File(const char* suffix) const { return directory_.File(name_ + suffix); }
  tl::unexpected<std::string> Problem(const std::string& why) const {
    return tl::unexpected("the test could not be run on " + name_ + " (" + side_.backend +
                          "): " + why);
  }

  // Returns `run` with the options of the backend. On the emulator, the test has a host of its own
  // (--private).
  std::vector<std::string> RunOptions() const {
    std::vector<std::string> run = {BinaryPath(), "run", "--backend", side_.backend};
    if (side_.backend == "emulator") run.insert(run.end(), {"--private", "--host", kHostName});
    if (side_.backend == "emulator" && !side_.address.empty()) {
      run.insert(run.end(), {"--address", side_.address});
    }
    if (!side_.device.empty()) run.insert(run.end(), {"--device", side_.device});
    return run;
  }

  std::vector<std::string> TestCommand() const {
    std::vector<std::string> run = RunOptions();
    run.insert(run.end(), {"--program-trace", File(".jsonl"), "--"});
    for (const std::string& word : request_.test) run.push_back(WithAddress(word, side_));
    return run;
  }

  std::vector<std::string> PairCommand() const {
    std::vector<std::string> pair = {BinaryPath(), "ab-pair",
                                     "--backend",  side_.backend,
                                     "--server",   WithAddress(request_.server, side_),
                                     "--client",   WithAddress(request_.client, side_),
                                     "--timeout",  request_.timeout,
                                     "--traces",   directory_.File(name_)};
    if (!side_.device.empty()) pair.insert(pair.end(), {"--device", side_.device});
    if (side_.backend == "system") return pair;
    std::vector<std::string> run = RunOptions();
    run.push_back("--");
    run.insert(run.end(), pair.begin(), pair.end());
    return run;
  }

  runtime::OrMessage<SideRun> OfPair() const {
    std::ifstream file(File(".status"));
    const auto statuses = nlohmann::json::parse(file, nullptr, false);
    if (!statuses.is_object()) return Problem("it left no status");
    const auto merged = MergeTraces({File(".server"), File(".client")}, File(".jsonl"));
    if (!merged) return tl::unexpected(merged.error());
    fs::remove(File(".status"));
    return SideRun{
        File(".jsonl"),
        {{"server", statuses.value("server", "")}, {"client", statuses.value("client", "")}}};
  }

  const AbRequest& request_;
  const AbSide& side_;
  const std::string name_;
  const TraceDirectory& directory_;
};

// Returns the mistake in the request, or nothing.
std::optional<std::string> Mistake(const AbRequest& request) {
  const bool is_pair = !request.server.empty() || !request.client.empty();
  if (is_pair && (request.server.empty() || request.client.empty())) {
    return "--server and --client need each other";
  }
  if (is_pair != request.test.empty()) {
    return "give a test behind --, as in: rdmaemu ab -- ./my_test; or --server and --client";
  }
  if (!ParseDuration(request.timeout)) return NotADuration(request.timeout);
  std::string words = request.server + request.client;
  for (const std::string& word : request.test) words += word;
  const bool has_address = words.find(kAddressWord) != words.npos;
  const bool runs_b = request.b_trace.empty();
  for (const auto& [side, option] :
       {std::pair(&request.a, "--a-address"), std::pair(&request.b, "--b-address")}) {
    if (side == &request.b && !runs_b) continue;
    if (!has_address || side->backend == "emulator" || !side->address.empty()) continue;
    return std::string("{address} stands for nothing; give ") + option +
           " the address of the device";
  }
  if (!runs_b && (!request.b.device.empty() || !request.b.address.empty())) {
    return "--b-trace is an earlier run; leave --b-device and --b-address out";
  }
  return std::nullopt;
}

}  // namespace

int Ab(const AbRequest& request) {
  if (const auto mistake = Mistake(request)) return Fail(kUsage, *mistake);
  // Ab reads files before the test runs, so that it reports an unreadable file at once.
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
  const auto run_a = SideRunner(request, request.a, "a", *directory).Run();
  if (!run_a) return Fail(kRunFailed, run_a.error());
  std::vector<RunStatus> statuses;
  if (b == nullptr) {
    const auto run_b = SideRunner(request, request.b, "b", *directory).Run();
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
