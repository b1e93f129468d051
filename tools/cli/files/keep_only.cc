#include "tools/cli/files/keep_only.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <initializer_list>

namespace rdmaemu::cli {

int KeepOnly(int fd) {
  constexpr int kFirst = 3;
  const int nothing = open("/dev/null", O_RDWR);
  if (nothing < 0) _exit(1);
  const int kept = fcntl(fd, F_DUPFD, kFirst);
  for (int standard = 0; standard < kFirst; standard++) dup2(nothing, standard);
  if (kept != kFirst) dup2(kept, kFirst);
  if (close_range(kFirst + 1, ~0u, 0) != 0) {
    const auto most = static_cast<int>(sysconf(_SC_OPEN_MAX));
    for (int other = kFirst + 1; other < most; other++) close(other);
  }
  return kFirst;
}

int BecomeServer(const char* name, int fd) {
  setsid();
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE}) signal(number, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  prctl(PR_SET_NAME, name);
  if (chdir("/") != 0) _exit(1);
  return KeepOnly(fd);
}

}  // namespace rdmaemu::cli
