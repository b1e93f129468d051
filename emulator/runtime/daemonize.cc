#include "emulator/runtime/daemonize.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace rdmaemu::runtime {
namespace {

constexpr char kReady = '+';  // the first byte of a success report; no error message begins with it

std::string ReadAll(int fd) {
  std::string text;
  char buffer[512];
  for (;;) {
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(buffer, static_cast<size_t>(got));
  }
}

void WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

// Returns the last line of a log, or nothing.
std::string LastLine(const std::string& path) {
  std::string last;
  std::ifstream log(path);
  for (std::string line; std::getline(log, line);) last = line;
  return last;
}

// Waits until there is something to read, or for the time. Returns false if the time has passed.
bool AwaitInput(int fd, Duration limit) {
  const auto limit_ms = std::chrono::duration_cast<std::chrono::milliseconds>(limit).count();
  pollfd waiting{fd, POLLIN, 0};
  // A signal ends the wait. Signals are rare here, and the reader waits without a limit.
  return poll(&waiting, 1, static_cast<int>(limit_ms)) != 0;
}

OrMessage<void> WaitForDaemon(int fd, pid_t child, const std::string& log_path,
                              const SlowStart& slow) {
  if (!AwaitInput(fd, slow.after)) slow.say();
  const std::string said = ReadAll(fd);
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (!said.empty() && said[0] == kReady) return {};
  if (!said.empty()) return tl::unexpected(said);
  const std::string line = LastLine(log_path);
  return tl::unexpected("the host process ended before it was ready" +
                        (line.empty() ? ", and gave no reason; is a limit reached (ulimit -n, -f, "
                                        "-u, -v)?"
                                      : ": " + line + "; see " + log_path));
}

constexpr int kNoticeFd = 3, kKeptFd = 4;

// Closes descriptors with close_range(2). Falls back to a loop for kernels before 5.9 and for
// seccomp profiles that refuse the call. A pipe that stays open here would block its reader.
void CloseFrom(int first) {
  if (close_range(static_cast<unsigned>(first), ~0u, 0) == 0) return;
  DIR* const open_ones = opendir("/proc/self/fd");
  if (open_ones == nullptr) {
    for (long fd = first, end = sysconf(_SC_OPEN_MAX); fd < end; fd++) close(static_cast<int>(fd));
    return;
  }
  const int own = dirfd(open_ones);
  while (const dirent* const entry = readdir(open_ones)) {
    const int fd = std::atoi(entry->d_name);
    if (fd >= first && fd != own) close(fd);
  }
  closedir(open_ones);
}

// Replaces the standard streams and closes all inherited descriptors except two.
void DetachDescriptors(int notice, int kept, const std::string& log_path) {
  const int null = open("/dev/null", O_RDWR);
  const int log =
      open(log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW, 0600);
  dup2(null, STDIN_FILENO);
  dup2(log >= 0 ? log : null, STDOUT_FILENO);
  dup2(log >= 0 ? log : null, STDERR_FILENO);
  // Move both to higher numbers first, because each may have the other's target number.
  notice = fcntl(notice, F_DUPFD, kKeptFd + 1);
  kept = fcntl(kept, F_DUPFD, kKeptFd + 1);
  dup3(notice, kNoticeFd, O_CLOEXEC);
  dup3(kept, kKeptFd, O_CLOEXEC);
  CloseFrom(kKeptFd + 1);
}

}  // namespace

void ReadyNotice::Ready() {
  if (fd_) WriteAll(fd_.get(), std::string_view(&kReady, 1));
  fd_.Reset();
}

void ReadyNotice::Failed(const std::string& message) {
  if (fd_) WriteAll(fd_.get(), message);
  fd_.Reset();
}

DaemonizeResult Daemonize(const std::string& log_path, UniqueFd keep, const SlowStart& slow) {
  const auto failed = [](const char* what) {
    DaemonizeResult result;
    result.outcome = tl::unexpected("cannot start a host process: " + std::string(what) + ": " +
                                    std::strerror(errno) + "; is a limit reached (ulimit -u, -n)?");
    return result;
  };
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return failed("pipe");
  UniqueFd read_end(ends[0]), write_end(ends[1]);
  const pid_t child = fork();
  if (child < 0) return failed("fork");
  if (child > 0) {
    write_end.Reset();
    DaemonizeResult result;
    result.outcome = WaitForDaemon(read_end.get(), child, log_path, slow);
    return result;
  }
  setsid();
  // After the second fork the process is no session leader. It can therefore get no controlling
  // terminal, and init is its parent.
  const pid_t daemon = fork();
  if (daemon != 0) _exit(daemon < 0 ? 1 : 0);
  [[maybe_unused]] const int changed = chdir("/");  // keep no directory busy
  umask(077);
  DetachDescriptors(write_end.Release(), keep.Release(), log_path);
  read_end.Release();  // closed above
  DaemonizeResult result;
  result.in_daemon = true;
  result.notice = ReadyNotice(kNoticeFd);
  result.kept.Reset(kKeptFd);
  return result;
}

}  // namespace rdmaemu::runtime
