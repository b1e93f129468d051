#include "tools/cli/run_report.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "emulator/runtime/environment_text.h"
#include "emulator/runtime/host_client.h"
#include "tools/cli/trace.h"

namespace rdmaemu::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char *kTraceFile = "trace.jsonl", *kCaptureFile = "capture.pcapng",
                     *kProgramFile = "program.jsonl", *kRulesFile = "rules.json",
                     *kLogFile = "host.log", *kEnvironmentFile = "environment.txt",
                     *kLadderFile = "ladder.html";
constexpr const char* kFiles[] = {kTraceFile, kCaptureFile,     kProgramFile, kRulesFile,
                                  kLogFile,   kEnvironmentFile, kLadderFile};
constexpr size_t kMaxLogBytes = size_t{16} << 20;  // the last ones
constexpr mode_t kDirectoryMode = 0700;            // captures have the data of programs

// Reads the end of a file.
std::string ReadEnd(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  const auto size = static_cast<size_t>(file.tellg());
  std::string text(std::min(size, kMaxLogBytes), '\0');
  file.seekg(static_cast<std::streamoff>(size - text.size()));
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

}  // namespace

runtime::OrMessage<RunReport> RunReport::Begin(const ReportRequest& request, RunRequest& run) {
  RunReport report;
  const fs::path parent = fs::absolute(request.directory).lexically_normal();
  report.host_ = run.options.name;
  report.version_ = request.version;
  report.is_always_ = request.is_always;
  std::error_code error;
  report.made_parent_ = fs::create_directories(parent, error);
  report.directory_ = (parent / report.host_).string();
  const auto failed = [&](int number) {
    return tl::unexpected("cannot write a report into " + report.directory_ + ": " +
                          std::strerror(number) + "; name another directory with --report");
  };
  if (error) return failed(error.value());
  if (mkdir(report.directory_.c_str(), kDirectoryMode) != 0 &&
      (errno != EEXIST || chmod(report.directory_.c_str(), kDirectoryMode) != 0)) {
    return failed(errno);
  }
  report.lock_.Reset(open(report.directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!report.lock_) return failed(errno);
  if (access(report.directory_.c_str(), W_OK) != 0) return failed(errno);
  if (flock(report.lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return tl::unexpected("another run writes its report into " + report.directory_ +
                          "; name another directory with --report");
  }
  for (const char* file : kFiles) unlink(report.Path(file).c_str());
  if (run.options.trace_path.empty()) run.options.trace_path = report.Path(kTraceFile);
  if (run.options.pcap_path.empty()) run.options.pcap_path = report.Path(kCaptureFile);
  if (run.program_trace.path.empty()) run.program_trace.path = report.Path(kProgramFile);
  return report;
}

void RunReport::Write(const char* file, const std::string& text) const {
  const std::string path = Path(file);
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) {
    fprintf(stderr, "error: cannot write %s: %s\n", path.c_str(), std::strerror(errno));
  }
}

void RunReport::Ask(const runtime::Registry& registry, runtime::HostClient& client) const {
  const Result<std::string> answer = client.Fault(CallOp::kFaultList, {});
  const std::optional<std::string> rules =
      answer ? std::optional(*answer) : registry.ReadCrash(host_, client.host_pid());
  Write(kRulesFile, rules.value_or("null") + "\n");
  const std::string log = ReadEnd(registry.LogPath(host_));
  if (!log.empty()) Write(kLogFile, log);
}

std::string RunReport::Environment(int status, const RunRequest& run) const {
  std::string text = "status " + std::to_string(status) + "\ncommand";
  for (const std::string& word : run.command) text += " " + word;
  text += "\nversion " + version_ + "\nhost " + host_ + "\ntrace " + run.options.trace_path +
          "\ncapture " + run.options.pcap_path + "\nprogram trace " + run.program_trace.path + "\n";
  if (!run.options.scenario_path.empty()) text += "scenario " + run.options.scenario_path + "\n";
  return text + runtime::EnvironmentText();
}

void RunReport::Remove() const {
  for (const char* file : kFiles) unlink(Path(file).c_str());
  rmdir(directory_.c_str());
  if (made_parent_) rmdir(fs::path(directory_).parent_path().c_str());
}

void RunReport::End(int status, const RunRequest& run) const {
  if (status == 0 && !is_always_) return Remove();
  Write(kEnvironmentFile, Environment(status, run));
  TraceLadderRequest ladder{.files = {}, .from = {}, .to = {}, .out = Path(kLadderFile)};
  for (const std::string& file :
       {run.options.trace_path, run.program_trace.path, run.options.pcap_path}) {
    if (access(file.c_str(), R_OK) == 0) ladder.files.push_back(file);
  }
  const bool is_drawn = !ladder.files.empty() && TraceLadder(ladder) == 0;
  fprintf(stderr, "note: the report of this run is in %s%s\n", directory_.c_str(),
          is_drawn ? "; open its ladder.html" : "");
}

int RunAndReport(const RunRequest& run) {
  if (run.report.directory.empty()) return Run(run);
  RunRequest reported = run;
  const auto report = RunReport::Begin(run.report, reported);
  if (!report) return Fail(kRunFailed, report.error());
  reported.at_end = [&](const runtime::Registry& registry, runtime::HostClient& client) {
    report->Ask(registry, client);
  };
  const int status = Run(reported);
  report->End(status, reported);
  return status;
}

}  // namespace rdmaemu::cli
