#include "tools/cli/spawn.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tools/cli/execute.h"

namespace rdmaemu::cli {
namespace {

namespace fs = std::filesystem;

// Returns the parent of a process, from /proc/PID/stat. Returns 0 when the process has ended.
pid_t ParentOf(const fs::path& directory) {
  std::ifstream file(directory / "stat");
  std::string text;
  std::getline(file, text);
  // The program's name is in parentheses, and may contain any character.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream rest(text.substr(name_end + 1));
  std::string state;
  pid_t parent = 0;
  rest >> state >> parent;
  return parent;
}

std::set<std::string> SocketInodes(pid_t process) {
  std::set<std::string> inodes;
  std::error_code error;
  const fs::path directory = "/proc/" + std::to_string(process) + "/fd";
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    const std::string target = fs::read_symlink(it->path(), gone).string();
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
  return inodes;
}

// Returns the inodes of the sockets that listen in the process's network namespace.
std::set<std::string> ListeningInodes(pid_t process) {
  std::set<std::string> inodes;
  for (const char* table : {"tcp", "tcp6"}) {
    std::ifstream file("/proc/" + std::to_string(process) + "/net/" + table);
    std::string line;
    while (std::getline(file, line)) {
      std::istringstream fields(line);
      std::vector<std::string> field;
      for (std::string each; fields >> each;) field.push_back(each);
      if (field.size() > 9 && field[3] == "0A") inodes.insert(field[9]);  // TCP_LISTEN
    }
  }
  return inodes;
}

std::string OutputOf(const char* command) {
  std::string text;
  FILE* const pipe = popen(command, "re");
  if (pipe == nullptr) return text;
  char buffer[4096];
  for (size_t count; (count = fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
    text.append(buffer, count);
  }
  pclose(pipe);
  return text;
}

}  // namespace

pid_t Spawn(const std::vector<std::string>& command) {
  fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(EXIT_FAILURE);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  Execute(command);
}

int WaitFor(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

std::optional<int> HasEnded(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, WNOHANG) == child) return status;
  return std::nullopt;
}

std::string StatusText(int wait_status) {
  const int signal = WIFSIGNALED(wait_status)         ? WTERMSIG(wait_status)
                     : WEXITSTATUS(wait_status) > 128 ? WEXITSTATUS(wait_status) - 128
                                                      : 0;
  if (signal != 0) return "signal " + std::to_string(signal);
  return std::to_string(WEXITSTATUS(wait_status));
}

std::vector<pid_t> ProcessTree(pid_t root) {
  std::multimap<pid_t, pid_t> children;
  std::error_code error;
  for (fs::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    children.emplace(ParentOf(it->path()), static_cast<pid_t>(std::atoi(name.c_str())));
  }
  std::vector<pid_t> tree = {root};
  for (size_t i = 0; i < tree.size(); i++) {
    const auto [begin, end] = children.equal_range(tree[i]);
    for (auto it = begin; it != end; it++) tree.push_back(it->second);
  }
  return tree;
}

bool ListensOnTcp(const std::vector<pid_t>& processes) {
  return std::ranges::any_of(processes, [](pid_t process) {
    const std::set<std::string> own = SocketInodes(process);
    return !own.empty() && std::ranges::any_of(ListeningInodes(process), [&](const auto& inode) {
      return own.contains(inode);
    });
  });
}

bool ListensOnKernelDevice(const std::vector<pid_t>& processes) {
  const std::string text =
      OutputOf("PATH=$PATH:/usr/sbin:/sbin rdma -j resource show cm_id 2>/dev/null");
  const auto ids = nlohmann::json::parse(text, nullptr, false);
  if (!ids.is_array()) return false;
  return std::ranges::any_of(ids, [&](const nlohmann::json& id) {
    return id.is_object() && id.contains("state") && id["state"] == "LISTEN" &&
           id.contains("pid") && id["pid"].is_number_integer() &&
           std::ranges::find(processes, id["pid"].get<pid_t>()) != processes.end();
  });
}

}  // namespace rdmaemu::cli
