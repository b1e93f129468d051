#include "tools/cli/supervise.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tools/cli/commands.h"
#include "tools/cli/execute.h"

namespace rdmaemu::cli {
namespace {

// Signals that `run` forwards to the program when a process sends them. The kernel sends a
// terminal's signals (Ctrl-C) to the whole foreground group, so the program gets those itself.
constexpr int kPassedOn[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM, SIGUSR1,
                             SIGUSR2, SIGALRM, SIGCONT, SIGWINCH};

// The time between two calls of `look`.
constexpr timespec kLookInterval{0, 50'000'000};

// Waits for the program and forwards signals to it. Returns its status of wait(2).
int Supervise(pid_t child, const sigset_t& watched, const std::function<void()>& look) {
  for (;;) {
    siginfo_t info;
    const int number =
        look ? sigtimedwait(&watched, &info, &kLookInterval) : sigwaitinfo(&watched, &info);
    if (look) look();
    if (number < 0) continue;
    if (number != SIGCHLD) {
      if (info.si_code <= 0) kill(child, number);  // from a process, not from the kernel
      continue;
    }
    // Reap all children that have ended. A container's first process also inherits children of
    // other processes.
    int status;
    for (pid_t ended; (ended = waitpid(-1, &status, WNOHANG)) > 0;) {
      if (ended == child) return status;
    }
  }
}

}  // namespace

int ExitStatus(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

tl::expected<EndedProgram, int> Supervised(const std::vector<std::string>& command,
                                           const std::function<void()>& look,
                                           const std::function<int()>& enter) {
  sigset_t watched, before;
  sigemptyset(&watched);
  sigaddset(&watched, SIGCHLD);
  for (const int number : kPassedOn) sigaddset(&watched, number);
  sigprocmask(SIG_BLOCK, &watched, &before);
  fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) {
    return tl::unexpected(Fail(kRunFailed, std::string("cannot start a process: ") +
                                               std::strerror(errno) +
                                               "; is a limit reached (ulimit -u)?"));
  }
  if (child == 0) {
    if (const int error = enter ? enter() : 0; error != 0) {
      _exit(Fail(kRunFailed, std::string("cannot enter the namespace with the devices: ") +
                                 std::strerror(error) +
                                 "; --sysfs off runs the program without these files"));
    }
    // SIGKILL to `run` must also end the program. Entering namespaces resets this setting.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(kRunFailed);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    Execute(command);
  }
  return EndedProgram{child, Supervise(child, watched, look)};
}

bool PrintErrors(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) Fail(kRunFailed, error);
  return errors.empty();
}

}  // namespace rdmaemu::cli
