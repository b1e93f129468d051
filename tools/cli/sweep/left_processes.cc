#include "tools/cli/sweep/left_processes.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "emulator/runtime/unique_fd.h"
#include "tools/cli/environment.h"
#include "tools/cli/spawn.h"

namespace rdmaemu::cli {
namespace {

bool HasMark(pid_t process, const std::string& mark) {
  std::ifstream file("/proc/" + std::to_string(process) + "/environ", std::ios::binary);
  const std::string environment{std::istreambuf_iterator<char>(file), {}};
  const std::string word = mark + std::string(1, '\0');
  return environment.starts_with(word) ||
         environment.find(std::string(1, '\0') + word) != environment.npos;
}

// `rdmaemu` keeps a private host for the programs that are left.
bool IsRdmaemu(pid_t process) {
  std::error_code error;
  const auto path =
      std::filesystem::read_symlink("/proc/" + std::to_string(process) + "/exe", error);
  return !error && path == std::filesystem::read_symlink("/proc/self/exe", error);
}

struct Left {
  pid_t process;
  runtime::UniqueFd fd;
};

void Signal(const Left& left, int number) {
  syscall(SYS_pidfd_send_signal, left.fd.get(), number, nullptr, 0);
}

bool HasEnded(const Left& left, int limit_ms) {
  pollfd end{left.fd.get(), POLLIN, 0};
  return poll(&end, 1, limit_ms) == 1;
}

}  // namespace

void AdoptLeftProcesses() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

size_t EndLeftProcesses(const std::string& mark) {
  std::vector<Left> of_test, of_rdmaemu;
  for (const pid_t process : ProcessTree(getpid())) {
    if (process == getpid()) continue;
    runtime::UniqueFd fd(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
    if (!fd || !HasMark(process, mark)) continue;
    (IsRdmaemu(process) ? of_rdmaemu : of_test).push_back({process, std::move(fd)});
  }
  const auto has_ended = [](const Left& each) { return HasEnded(each, kLeftProcessEndsWithin_ms); };
  std::erase_if(of_test, has_ended);
  if (of_test.empty()) return 0;
  for (const Left& each : of_test) Signal(each, SIGTERM);
  for (std::vector<Left>* const group : {&of_test, &of_rdmaemu}) {
    for (const Left& each : *group) {
      if (!has_ended(each)) Signal(each, SIGKILL);
      has_ended(each);
      waitpid(each.process, nullptr, WNOHANG);  // succeeds if this process has adopted it
    }
  }
  return of_test.size();
}

}  // namespace rdmaemu::cli
