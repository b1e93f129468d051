// rdmaemu_report: writes a directory that explains a failed test.

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/embedded/last_error.h"
#include "emulator/embedded/process_host.h"
#include "emulator/runtime/environment_text.h"
#include "emulator/runtime/unique_fd.h"
#include "rdmaemu/rdmaemu.h"

namespace rdmaemu::embedded {
namespace {

namespace fs = std::filesystem;

// Captures and traces have the data of programs.
constexpr mode_t kDirectoryMode = 0700, kFileMode = 0600;
constexpr size_t kMaxNameBytes = 150;
constexpr int kMaxReportsOfOneName = 10'000;
constexpr const char* kLadderFile = "ladder.html";

using Parts = std::vector<EmbeddedHost::ReportPart>;

int RefuseFile(int error, const std::string& path) {
  return Refuse(error, "cannot write the report " + path + ": " + std::strerror(error) +
                           "; name another directory");
}

std::string FileName(std::string name) {
  const auto is_plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '.' ||
           c == '-';
  };
  std::replace_if(
      name.begin(), name.end(), [&](char c) { return !is_plain(c); }, '_');
  name.resize(std::min(name.size(), kMaxNameBytes));
  if (name.empty() || name[0] == '.') name.insert(0, "_");
  return name;
}

// Makes a directory that did not exist. Returns 0 or a negative errno.
int MakeDirectory(const fs::path& parent, const std::string& name, std::string& directory) {
  std::error_code error;
  fs::create_directories(parent, error);
  if (error) return RefuseFile(error.value(), parent.string());
  for (int number = 1; number <= kMaxReportsOfOneName; number++) {
    const std::string suffix = number == 1 ? "" : "-" + std::to_string(number);
    directory = (parent / (name + suffix)).string();
    if (mkdir(directory.c_str(), kDirectoryMode) == 0) return 0;
    if (errno != EEXIST) return RefuseFile(errno, directory);
  }
  return RefuseFile(EEXIST, directory);
}

// Returns 0 or an errno.
int WriteFile(const std::string& path, std::string_view bytes) {
  const runtime::UniqueFd fd(
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kFileMode));
  if (!fd) return errno;
  while (!bytes.empty()) {
    const ssize_t written = write(fd.get(), bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return errno;
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

std::string CommandLine() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string words((std::istreambuf_iterator<char>(file)), {});
  if (!words.empty() && words.back() == '\0') words.pop_back();
  std::replace(words.begin(), words.end(), '\0', ' ');
  return words;
}

std::string Environment(const std::string& name, const Parts& parts) {
  std::string text = "test " + name + "\ncommand " + CommandLine() + "\n";
  for (const EmbeddedHost::ReportPart& part : parts) {
    text += "host " + part.host + (part.has_ended ? " (ended)" : "") + "\nseed " + part.seed + "\n";
    if (part.trace.dropped > 0) {
      text += "older records that the trace lacks " + std::to_string(part.trace.dropped) + "\n";
    }
    if (part.capture.dropped > 0) {
      text += "older packets that the capture lacks " + std::to_string(part.capture.dropped) + "\n";
    }
  }
  return text + runtime::EnvironmentText();
}

std::string RulesJson(const Parts& parts) {
  std::string text;
  for (const EmbeddedHost::ReportPart& part : parts) {
    for (const std::string& rule : part.rules) text += (text.empty() ? "" : ",\n") + rule;
  }
  return "[" + text + "]\n";
}

// Returns the command of the prefix that contains this library. "": there is none.
std::string FindCommand() {
  Dl_info library;
  if (dladdr(reinterpret_cast<void*>(&rdmaemu_report), &library) == 0) return {};
  std::error_code error;
  const fs::path directory = fs::canonical(library.dli_fname, error).parent_path();
  // lib/rdmaemu of a prefix, lib/x86_64-linux-gnu/rdmaemu of a package.
  for (const char* up : {"../../bin/rdmaemu", "../../../bin/rdmaemu"}) {
    const std::string command = (directory / up).lexically_normal().string();
    if (access(command.c_str(), X_OK) == 0) return command;
  }
  return {};
}

// Draws the ladder in another process, with its messages suppressed. The report is complete without
// a ladder, so errors are ignored. A page that was not written whole is removed.
void DrawLadder(const std::string& directory, const std::vector<std::string>& files) {
  const std::string command = FindCommand();
  if (command.empty()) return;
  std::vector<std::string> words = {command, "trace", "ladder"};
  words.insert(words.end(), files.begin(), files.end());
  const std::string page = directory + "/" + kLadderFile;
  words.insert(words.end(), {"-o", page});
  std::vector<char*> arguments, variables;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  for (char** variable = environ; variable != nullptr && *variable != nullptr; variable++) {
    if (!std::string_view(*variable).starts_with("LD_PRELOAD=")) variables.push_back(*variable);
  }
  variables.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t pid = -1;
  const int error =
      posix_spawn(&pid, command.c_str(), &actions, nullptr, arguments.data(), variables.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return;
  int status = -1;
  while (waitpid(pid, &status, 0) < 0) {
    // Where SIGCHLD is ignored there is no status.
    if (errno != EINTR) return;
  }
  if (status != 0) unlink(page.c_str());
}

// Writes the files. Returns 0 or a negative errno.
int WriteFiles(const std::string& directory, const std::string& name, const Parts& parts) {
  std::vector<std::string> drawn;
  int error = 0;
  std::string path;
  const auto write = [&](const std::string& file, std::string_view bytes) {
    path = directory + "/" + file;
    if (error == 0) error = WriteFile(path, bytes);
  };
  std::set<std::string> hosts;  // a host that was added again has its name a second time
  for (const EmbeddedHost::ReportPart& part : parts) {
    std::string host = part.host;
    for (int number = 2; !hosts.insert(host).second; number++) {
      host = part.host + "-" + std::to_string(number);
    }
    write(host + ".jsonl", part.trace.bytes);
    drawn.push_back(path);
    write(host + ".pcapng", part.capture.bytes);
    drawn.push_back(path);
  }
  write("rules.json", RulesJson(parts));
  write("environment.txt", Environment(name, parts));
  if (error != 0) return RefuseFile(error, path);
  DrawLadder(directory, drawn);
  return 0;
}

}  // namespace
}  // namespace rdmaemu::embedded

using namespace rdmaemu;
using namespace rdmaemu::embedded;

int rdmaemu_report(const char* directory, const char* name, char* path, size_t bytes) {
  return AtDoor([&] {
    if (directory == nullptr || *directory == '\0') return NoText("directory");
    if (name == nullptr) return NoText("name");
    Parts parts;
    const int result = WithHosts([&](EmbeddedHosts& hosts) {
      parts = hosts.Report();
      return 0;
    });
    if (result < 0) return result;
    if (parts.empty()) {
      return Refuse(EINVAL,
                    "the hosts keep nothing for a report; open the first host with "
                    "options.report_bytes");
    }
    // The files are written without the lock of the hosts.
    std::string made;
    const fs::path parent = fs::absolute(directory).lexically_normal();
    if (const int error = MakeDirectory(parent, FileName(name), made); error != 0) return error;
    if (const int error = WriteFiles(made, name, parts); error != 0) return error;
    if (path != nullptr && bytes > 0) path[made.copy(path, bytes - 1)] = '\0';
    return static_cast<int>(made.size());
  });
}
