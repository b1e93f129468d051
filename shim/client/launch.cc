#include "shim/client/launch.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <initializer_list>

extern char** environ;

namespace rdmaemu::client {
namespace {

constexpr size_t kMaxEnvironment = 65536;  // maximum number of variables passed to a new host

// The host of `rdmaemu run`, as the environment named it when the library was loaded. Programs may
// clear their environment before their first call.
struct HostOfRun {
  char name[kMaxHostNameBytes + 1];
  char directory[PATH_MAX];
} g_run;

template <size_t Size>
void CopyVariable(const char* variable, char (&to)[Size]) {
  const char* const value = secure_getenv(variable);
  if (value != nullptr && strlen(value) < Size) strcpy(to, value);
}

__attribute__((constructor)) void RememberHostOfRun() {
  CopyVariable("RDMAEMU_RUN", g_run.name);
  if (g_run.name[0] != '\0') CopyVariable("RDMAEMU_DIR", g_run.directory);
}

// Returns the variable, or what `run` has set.
const char* VariableOr(const char* variable, const char* of_run) {
  const char* const value = secure_getenv(variable);
  return value == nullptr && of_run[0] != '\0' ? of_run : value;
}

bool IsOwnDirectory(const char* path) {
  struct stat status;
  return lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid();
}

bool ChooseDirectory(char (&path)[PATH_MAX]) {
  const char* chosen = VariableOr("RDMAEMU_DIR", g_run.directory);
  int length;
  if (chosen != nullptr && chosen[0] != '\0') {
    length = snprintf(path, sizeof path, "%s", chosen);
  } else {
    const char* runtime = secure_getenv("XDG_RUNTIME_DIR");
    if (runtime != nullptr && runtime[0] != '\0' && IsOwnDirectory(runtime)) {
      length = snprintf(path, sizeof path, "%s/rdmaemu", runtime);
    } else {
      length = snprintf(path, sizeof path, "/tmp/rdmaemu-%u", geteuid());
    }
  }
  return length > 0 && static_cast<size_t>(length) < sizeof path;
}

bool IsHostName(const char* name) {
  const size_t length = strlen(name);
  return length > 0 && length <= kMaxHostNameBytes && name[0] != '.' &&
         strchr(name, '/') == nullptr;
}

// Returns the folder of this library's file. Returns false if the loader does not find the file.
bool LibraryFolder(char (&folder)[PATH_MAX]) {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&FindHostPlace), &info) == 0 ||
      info.dli_fname == nullptr || realpath(info.dli_fname, folder) == nullptr) {
    return false;
  }
  char* slash = strrchr(folder, '/');
  if (slash == nullptr) return false;
  *slash = '\0';
  return true;
}

// Finds the command that starts hosts. "rdmaemu" alone is searched in PATH.
void FindCommand(char (&command)[PATH_MAX]) {
  const char* named = secure_getenv("RDMAEMU_BIN");
  if (named != nullptr && named[0] != '\0') {
    snprintf(command, sizeof command, "%s", named);
    return;
  }
  char folder[PATH_MAX];
  if (LibraryFolder(folder)) {
    for (const char* beside : {"../../tools/cli/rdmaemu", "../../bin/rdmaemu"}) {
      const int length = snprintf(command, sizeof command, "%s/%s", folder, beside);
      if (length > 0 && static_cast<size_t>(length) < sizeof command &&
          access(command, X_OK) == 0) {
        return;
      }
    }
  }
  snprintf(command, sizeof command, "rdmaemu");
}

// Copies the environment without LD_PRELOAD. Libraries that are preloaded into a program (rsockets
// over sockets, this library) must not be loaded into the host.
char** EnvironmentForHost() {
  size_t count = 0;
  while (environ != nullptr && environ[count] != nullptr && count < kMaxEnvironment) count++;
  char** copy = static_cast<char**>(calloc(count + 1, sizeof(char*)));
  if (copy == nullptr) return nullptr;
  size_t kept = 0;
  for (size_t i = 0; i < count; i++) {
    if (strncmp(environ[i], "LD_PRELOAD=", 11) != 0) copy[kept++] = environ[i];
  }
  return copy;
}

int Spawn(const char* command, char* const arguments[], char* const environment[], pid_t& pid) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  if (posix_spawn_file_actions_init(&files) != 0) return ENOMEM;
  if (posix_spawnattr_init(&attributes) != 0) {
    posix_spawn_file_actions_destroy(&files);
    return ENOMEM;
  }
  // A host that inherited the program's descriptors would keep its pipes open after the program's
  // end.
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const int error = posix_spawnp(&pid, command, &files, &attributes, arguments, environment);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

}  // namespace

void Complain(Complaint kind, const char* format, ...) {
  static std::atomic<uint32_t> said{0};
  const uint32_t bit = 1u << static_cast<unsigned>(kind);
  if ((said.fetch_or(bit) & bit) != 0) return;
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (length > 0) dprintf(STDERR_FILENO, "rdmaemu: %s\n", line);
}

void ComplainOfEnd(const HostPlace& place, unsigned host_pid) {
  char log[sizeof place.socket.sun_path + 8];
  const size_t folder_and_name = strlen(place.socket.sun_path) - strlen(".sock");
  snprintf(log, sizeof log, "%.*s.log", static_cast<int>(folder_and_name), place.socket.sun_path);
  struct stat status;
  const bool has_log = stat(log, &status) == 0 && status.st_size > 0;
  Complain(Complaint::kGone,
           "host '%s' (process %u) has ended, and its devices no longer work; %s%s; start this "
           "program again",
           place.name, host_pid,
           has_log ? "the reason may be in its log, " : "it was stopped or killed, and left no log",
           has_log ? log : "");
}

int FindHostPlace(HostPlace& place) {
  const char* name = VariableOr("RDMAEMU_HOST", g_run.name);
  if (name == nullptr || name[0] == '\0') name = "default";
  if (!IsHostName(name)) {
    Complain(Complaint::kUnreachable,
             "no RDMA devices: RDMAEMU_HOST is not a host's name; use 1 to %u characters "
             "without '/' and not beginning with '.'",
             kMaxHostNameBytes);
    return EINVAL;
  }
  char directory[PATH_MAX];
  place.socket.sun_family = AF_UNIX;
  int length = -1;
  if (ChooseDirectory(directory)) {
    length = snprintf(place.socket.sun_path, sizeof place.socket.sun_path, "%s/%s.sock", directory,
                      name);
  }
  if (length <= 0 || static_cast<size_t>(length) >= sizeof place.socket.sun_path) {
    Complain(Complaint::kUnreachable,
             "no RDMA devices: the path of host '%s' is too long for a socket; set RDMAEMU_DIR to "
             "a shorter one",
             name);
    return ENAMETOOLONG;
  }
  snprintf(place.name, sizeof place.name, "%s", name);
  struct stat status;
  if (lstat(directory, &status) == 0 && !IsOwnDirectory(directory)) {
    Complain(Complaint::kUnreachable,
             "no RDMA devices: %s is not a directory of this user, so its hosts cannot be trusted; "
             "set RDMAEMU_DIR to a directory of this user",
             directory);
    return EACCES;
  }
  return 0;
}

bool StartHost(const HostPlace& place) {
  // `rdmaemu run` names its host. The host's options are unknown here.
  if (strcmp(g_run.name, place.name) == 0) {
    Complain(Complaint::kUnreachable,
             "no RDMA devices: host '%s' has ended, on which `rdmaemu run` started this program; "
             "start the program with `rdmaemu run` again",
             place.name);
    return false;
  }
  char command[PATH_MAX];
  FindCommand(command);
  char name[sizeof place.name];
  memcpy(name, place.name, sizeof name);
  char program[] = "rdmaemu", verb[] = "host", option[] = "--name", detach[] = "--daemonize";
  char* const arguments[] = {program, verb, option, name, detach, nullptr};
  char** environment = EnvironmentForHost();
  if (environment == nullptr) return false;
  pid_t pid = -1;
  const int error = Spawn(command, arguments, environment, pid);
  free(environment);
  if (error != 0) {
    Complain(Complaint::kUnreachable,
             "no RDMA devices: host '%s' is not running and %s cannot be started (%s); set "
             "RDMAEMU_BIN to the rdmaemu command, or start the program with `rdmaemu run`",
             place.name, command, strerror(error));
    return false;
  }
  int status = 0;
  pid_t waited;
  do {
    waited = waitpid(pid, &status, 0);
  } while (waited < 0 && errno == EINTR);
  // A program that ignores SIGCHLD, or waits for any child, may have reaped the command.
  if (waited < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) return true;
  // The command has printed the reason to stderr.
  Complain(Complaint::kUnreachable, "no RDMA devices: host '%s' could not be started by %s",
           place.name, command);
  return false;
}

}  // namespace rdmaemu::client
