#include "shim/files/redirect.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

namespace rdmaemu::files {
namespace {

// The first call copies the variable, because the program may change its environment later.
const char* Base() {
  enum : int { kNew, kCopying, kReady };
  static std::atomic<int> state = kNew;
  static char base[sizeof sockaddr_un::sun_path];
  if (state.load(std::memory_order_acquire) == kReady) return base;
  const char* const value = getenv(kFilesVariable);
  const char* const given = value == nullptr ? "" : value;
  if (strlen(given) + sizeof kFilesSocket > sizeof base) return "";
  int expected = kNew;
  if (!state.compare_exchange_strong(expected, kCopying)) return given;
  strcpy(base, given);
  state.store(kReady, std::memory_order_release);
  return base;
}

bool IsBelow(const char* path, const char* prefix) {
  const size_t length = strlen(prefix);
  return strncmp(path, prefix, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

bool IsOurs(const char* path) {
  for (const char* const prefix : kFilesPrefixes) {
    if (IsBelow(path, prefix)) return true;
  }
  return false;
}

// Removes "//", "." and ".." without looking at links. Returns false when the path is too long.
bool Normalise(const char* path, char (&out)[PATH_MAX]) {
  size_t length = 0;
  while (*path != '\0') {
    while (*path == '/') path++;
    const size_t part = strcspn(path, "/");
    if (part == 2 && path[0] == '.' && path[1] == '.') {
      while (length > 0 && out[--length] != '/') {
      }
    } else if (part > 0 && !(part == 1 && path[0] == '.')) {
      if (length + part + 2 > PATH_MAX) return false;
      out[length++] = '/';
      memcpy(out + length, path, part);
      length += part;
    }
    path += part;
  }
  out[length] = '\0';
  return true;
}

// Returns the length of the tree's own path if `path` begins with it. 0: the path is not in the
// tree.
size_t TreeLength(const char* path) {
  const char* const base = Base();
  const size_t length = strlen(base);
  constexpr size_t kTree = sizeof kFilesTree - 1;
  const bool is_in = length > 0 && strncmp(path, base, length) == 0 &&
                     strncmp(path + length, kFilesTree, kTree) == 0 &&
                     (path[length + kTree] == '/' || path[length + kTree] == '\0');
  return is_in ? length + kTree : 0;
}

std::atomic<bool> is_in_tree = false;
std::atomic<bool> has_directories = false;  // the program may hold open directories of the tree

// Reads the path of an open directory, or of the current one, without this library's readlink.
// Returns false when it cannot be read.
bool PathOf(int directory, char (&out)[PATH_MAX]) {
  char link[32] = "/proc/self/cwd";
  if (directory != AT_FDCWD) snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
  const long got = syscall(SYS_readlinkat, AT_FDCWD, link, out, sizeof out - 1);
  if (got <= 0) return false;
  out[got] = '\0';
  return true;
}

// Returns true if a relative path can lead from above to one of kFilesPrefixes.
bool NamesOurs(const char* path) {
  return strstr(path, "infiniband") != nullptr || strstr(path, "rdma_cm") != nullptr;
}

// Decides about an absolute path. `out` gets the path for the server or, for a path of the machine,
// the path to use.
Found Decide(const char* path, char (&out)[PATH_MAX]) {
  if (!Normalise(path, out)) return Found::kElsewhere;
  if (!IsOurs(out)) return IsOurs(path) ? Found::kMachines : Found::kElsewhere;
  // The server interprets ".." after a link as the kernel does.
  if (IsOurs(path) && strlen(path) < PATH_MAX) strcpy(out, path);
  return Found::kHere;
}

// Writes the path as the program means it.
Found SystemPath(int directory, const char* path, char (&out)[PATH_MAX]) {
  // Let the next library report invalid pointers.
  constexpr uintptr_t kLeastPointer = 4096;
  if (reinterpret_cast<uintptr_t>(path) < kLeastPointer || path[0] == '\0') {
    return Found::kElsewhere;
  }
  if (path[0] == '/') {
    const bool may_be = IsBelow(path, "/sys") || IsBelow(path, "/dev") ||
                        strstr(path, "/.") != nullptr || strstr(path, "//") != nullptr;
    return may_be && NamesOurs(path) ? Decide(path, out) : Found::kElsewhere;
  }
  const bool may_be_in = directory == AT_FDCWD ? IsInTree() : has_directories.load();
  if (!may_be_in && !NamesOurs(path)) return Found::kElsewhere;
  char at[PATH_MAX];
  if (!PathOf(directory, at)) return Found::kElsewhere;
  const size_t tree = TreeLength(at);
  if (strlen(at + tree) + strlen(path) + 2 > PATH_MAX) return Found::kElsewhere;
  char whole[PATH_MAX];
  strcpy(whole, at + tree);
  strcat(whole, "/");
  strcat(whole, path);
  const Found found = Decide(whole, out);
  // A path that leads out of the tree is the machine's.
  return found == Found::kElsewhere && tree != 0 ? Found::kMachines : found;
}

// Returns 0 or an errno. ENOENT, ECONNREFUSED: the server has ended. EIO: the server does not
// reply. Makes system calls directly, because the C library's functions would be cancellation
// points and visible to sanitizers.
int Ask(const char* base, const char* path, FilesReply& reply) {
  const long fd = syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  strcpy(address.sun_path, base);
  strcat(address.sun_path, kFilesSocket);
  const timeval limit{kFilesTimeoutSeconds, 0};
  syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  long connected = -1;
  while ((connected = syscall(SYS_connect, fd, &address, sizeof address)) != 0 && errno == EINTR) {
  }
  const int refused = errno;
  long got = -1;
  if (connected == 0 && syscall(SYS_sendto, fd, path, strlen(path), MSG_NOSIGNAL, nullptr, 0) > 0) {
    while ((got = syscall(SYS_recvfrom, fd, &reply, sizeof reply, 0, nullptr, nullptr)) < 0 &&
           errno == EINTR) {
    }
  }
  syscall(SYS_close, fd);
  if (connected != 0 && (refused == ENOENT || refused == ECONNREFUSED)) return refused;
  return got == sizeof reply ? 0 : EIO;
}

// Handles a program that was started in a directory of the tree.
__attribute__((constructor)) void NoteFirstDirectory() {
  if (Base()[0] != '\0') NoteFchdir();
}

}  // namespace

Found Find(int directory, const char* path, Place& place) {
  const int before = errno;
  char system[PATH_MAX];
  const char* const base = Base();
  const Found meant = base[0] == '\0' ? Found::kElsewhere : SystemPath(directory, path, system);
  errno = before;
  if (meant == Found::kMachines) strcpy(place.path, system);
  if (meant != Found::kHere) return meant;
  int error = 0;
  if (strlen(base) + sizeof kFilesTree + strlen(system) > sizeof place.path) error = ENAMETOOLONG;
  if (error == 0) error = Ask(base, system, place.file);
  // A program that outlives its `rdmaemu run` sees the machine's files.
  if (error == ENOENT || error == ECONNREFUSED) {
    errno = before;
    strcpy(place.path, system);
    return Found::kMachines;
  }
  if (error == 0 && place.file.error != ENOENT && place.file.error != ENOTDIR) {
    error = place.file.error;
  }
  errno = error == 0 ? before : error;
  if (error != 0) return Found::kFailed;
  strcpy(place.path, base);
  strcat(place.path, kFilesTree);
  strcat(place.path, system);
  return Found::kHere;
}

void NoteChdir(Found found) {
  is_in_tree.store(found == Found::kHere);
  if (found == Found::kHere) has_directories.store(true);
}

void NoteFchdir() {
  const int before = errno;
  char at[PATH_MAX];
  NoteChdir(PathOf(AT_FDCWD, at) && TreeLength(at) != 0 ? Found::kHere : Found::kElsewhere);
  errno = before;
}

void NoteOpenDirectory() { has_directories.store(true); }
bool HasDirectories() { return has_directories.load(std::memory_order_acquire); }

bool IsInTree() { return is_in_tree.load(std::memory_order_acquire); }

void ShowAsSystem(char* path) {
  const size_t tree = TreeLength(path);
  if (tree == 0) return;
  if (path[tree] == '\0') {
    strcpy(path, "/");
  } else {
    memmove(path, path + tree, strlen(path + tree) + 1);
  }
}

long ShowAsSystem(char* path, long length) {
  if (length <= 0 || length >= PATH_MAX) return length;
  char text[PATH_MAX];
  memcpy(text, path, static_cast<size_t>(length));
  text[length] = '\0';
  ShowAsSystem(text);
  const size_t shown = strlen(text);
  memcpy(path, text, shown);
  return static_cast<long>(shown);
}

}  // namespace rdmaemu::files
