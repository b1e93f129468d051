#include "tools/cli/checks.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "shim/layer/checks/findings.h"
#include "tools/cli/execute.h"

namespace rdmaemu::cli {
namespace {

namespace fs = std::filesystem;
namespace format = layer::checks;

bool WriteControl(const fs::path& path) {
  const auto control = std::make_unique<format::Control>();
  control->magic = format::kControlMagic;
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(control.get()), sizeof *control);
  file.close();
  return file.good();
}

std::unique_ptr<format::Control> ReadControl(const fs::path& path) {
  auto control = std::make_unique<format::Control>();
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(control.get()), sizeof *control)) return nullptr;
  return control->magic == format::kControlMagic ? std::move(control) : nullptr;
}

using Json = nlohmann::ordered_json;

// Prints a finding. section.cc writes the members of its line.
void Print(const Json& finding) {
  const auto member = [&](const char* name) { return finding.value(name, std::string()); };
  std::string text = "rdmaemu check: " + member("rule") + ": " + member("title") +
                     "\n  call:   " + member("call") + " at " + member("place") +
                     "\n  detail: " + member("detail") + "\n";
  for (const Json& object : finding.value("objects", Json::array())) {
    const std::string name = object.value("name", "") + ":";
    text += "  " + name + std::string(name.size() < 8 ? 8 - name.size() : 1, ' ') + "created by " +
            object.value("made_by", "") + " at ";
    const Json frames = object.value("created_at", Json::array());
    for (const Json& frame : frames) {
      text += (&frame == &frames.front() ? "" : ", ") + frame.get<std::string>();
    }
    text += "\n";
  }
  text += "  source: " + member("source") + "\n  mend:   " + member("mend") + "\n";
  fputs(text.c_str(), stderr);
}

// The status of a program that a signal ended is this number plus the signal's number
// (docs/command.md).
constexpr int kSignalled = 128;

struct Rule {
  std::string title;
  uint64_t places = 0, times = 0;
};

// `status` is that of the program.
void Print(const std::map<std::string, Rule>& rules, const format::Control& control, int status) {
  if (control.processes == 0) {
    fprintf(stderr,
            "warning: nothing was checked: no process of the program loaded libibverbs.so.1 or"
            " librdmacm.so.1. A program that is linked statically cannot be checked\n");
    return;
  }
  if (rules.empty() && status >= kSignalled) {
    fprintf(stderr,
            "note: the usage checks found nothing before the program ended with status %d (signal"
            " %d). A use of freed memory may be the reason: build with -fsanitize=address\n",
            status, status - kSignalled);
  } else if (rules.empty()) {
    fprintf(stderr, "note: the usage checks found nothing\n");
  }
  for (const auto& [id, rule] : rules) {
    fprintf(stderr, "note: %s: %s: at %llu place%s, %llu time%s\n", id.c_str(), rule.title.c_str(),
            static_cast<unsigned long long>(rule.places), rule.places == 1 ? "" : "s",
            static_cast<unsigned long long>(rule.times), rule.times == 1 ? "" : "s");
  }
  if (control.skipped > 0) {
    fprintf(stderr,
            "note: %llu calls in signal handlers were not checked, because they interrupted a"
            " check\n",
            static_cast<unsigned long long>(control.skipped.load()));
  }
  if (const int error = control.watch_error; error == format::kBreakpointsIgnored) {
    fprintf(stderr,
            "note: RDMAEMU-MR-008 was not checked, because the processor ignores breakpoints, as in"
            " some virtual machines. Run the test on another machine to check this rule\n");
  } else if (error != 0) {
    fprintf(
        stderr,
        "note: RDMAEMU-MR-008 was not checked, because perf_event_open(2) was refused: %s. Allow"
        " it to the container, or as root set kernel.perf_event_paranoid to 2\n",
        std::strerror(error));
  }
}

}  // namespace

tl::expected<Checks, std::string> Checks::Begin(const ChecksRequest& request) {
  Checks checks;
  checks.json_path_ = request.json_path;
  if (!request.json_path.empty() && !std::ofstream(request.json_path, std::ios::trunc)) {
    return tl::unexpected("cannot write --check-json " + request.json_path + ": " +
                          std::strerror(errno));
  }
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  std::string directory = (error ? fs::path("/tmp") : parent) / "rdmaemu-checks-XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) {
    return tl::unexpected("cannot create " + directory + " for the findings of --check: " +
                          std::strerror(errno) + "; set TMPDIR to a directory that you can write");
  }
  checks.directory_ = directory;
  if (!WriteControl(fs::path(directory) / format::kControlName) ||
      !std::ofstream(fs::path(directory) / format::kFindingsName)) {
    return tl::unexpected("cannot write the files of --check in " + directory + ": " +
                          std::strerror(errno));
  }
  return checks;
}

Checks::~Checks() {
  if (directory_.empty()) return;
  std::error_code ignored;
  fs::remove_all(directory_, ignored);
}

void Checks::Look() {
  std::ifstream file(fs::path(directory_) / format::kFindingsName);
  file.seekg(read_bytes_);
  // The last line may be incomplete.
  for (std::string line; std::getline(file, line) && !file.eof();) {
    read_bytes_ += static_cast<std::streamoff>(line.size()) + 1;
    const Json finding = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!finding.is_object()) continue;
    Print(finding);
    lines_.push_back(std::move(line));
  }
}

Checks::Result Checks::End(int status) {
  Look();
  Result result;
  const auto control = ReadControl(fs::path(directory_) / format::kControlName);
  if (control == nullptr) {
    result.errors.push_back("the findings of --check are lost: their files in " + directory_ +
                            " cannot be read");
    return result;
  }
  const uint32_t wanted = control->findings;
  std::map<std::string, Rule> rules;
  std::ofstream json(json_path_.empty() ? "/dev/null" : json_path_, std::ios::trunc);
  uint32_t found = 0;
  for (const std::string& line : lines_) {
    Json finding = Json::parse(line);
    const auto number = finding.value("number", format::kMaxFindings);
    if (number >= format::kMaxFindings) continue;
    found++;
    finding.erase("number");
    finding["times"] = control->times[number].load();
    Rule& rule = rules[finding.value("rule", "")];
    rule.title = finding.value("title", "");
    rule.places++;
    rule.times += control->times[number];
    json << finding.dump() << "\n";
  }
  json.close();
  // If the program was not started, the reason has been printed.
  if (status != kNotExecutable && status != kNotFound) Print(rules, *control, status);
  if (found < wanted) {
    result.errors.push_back(
        wanted > format::kMaxFindings
            ? "--check lost findings: it records at most " + std::to_string(format::kMaxFindings)
            : "--check lost " + std::to_string(wanted - found) + " of " + std::to_string(wanted) +
                  " findings: the file system of " + directory_ +
                  " is full, or a process was killed while it wrote");
  }
  if (!json) result.errors.push_back("cannot write all of --check-json " + json_path_);
  result.has_findings = wanted > 0;
  return result;
}

}  // namespace rdmaemu::cli
