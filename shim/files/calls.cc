// The C library's file calls, which find a host's files below the paths of kFilesPrefixes. A call
// for another path is passed to the next library unchanged.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <type_traits>

#include "shim/files/redirect.h"

#define EXPORT extern "C" __attribute__((visibility("default")))
// The next library's function of this name and type. Null when it has none.
#define NEXT(type, name) (reinterpret_cast<std::add_pointer_t<type>>(Next<Name{name}>()))

namespace {

using rdmaemu::files::Find;
using rdmaemu::files::Found;
using rdmaemu::files::HasDirectories;
using rdmaemu::files::IsInTree;
using rdmaemu::files::NoteChdir;
using rdmaemu::files::NoteFchdir;
using rdmaemu::files::NoteOpenDirectory;
using rdmaemu::files::Place;
using rdmaemu::files::ShowAsSystem;

template <size_t kBytes>
struct Name {
  constexpr Name(const char (&name)[kBytes]) { std::copy_n(name, kBytes, text); }
  char text[kBytes];
};

// The next library's function of a name. It is looked up when this library is loaded, because dlsym
// may allocate memory and takes locks. Only calls of earlier constructors look it up themselves.
template <Name kName>
struct Following {
  static void* Find() {
    void* const found = dlsym(RTLD_NEXT, kName.text);
    known.store(found, std::memory_order_release);
    return found;
  }
  static inline std::atomic<void*> known = nullptr;
  static inline void* const at_load = Find();
};

template <Name kName>
void* Next() {
  (void)&Following<kName>::at_load;  // so that the compiler instantiates it
  void* const known = Following<kName>::known.load(std::memory_order_acquire);
  return known != nullptr ? known : Following<kName>::Find();
}

// Returns 0, or the errno with which opening the file must fail. The host's files are read-only.
int WhyNotOpened(const Place& place, bool is_written) {
  if (place.file.error == ENOENT && is_written) return EACCES;
  if (place.file.error != 0) return 0;  // the call on the copy reports the error
  if (is_written || place.file.is_device != 0) return EACCES;
  return place.file.read_error;
}

int Fail(int error) {
  errno = error;
  return -1;
}

using OpenAt = int(int, const char*, int, ...);

int Open(OpenAt* next, int directory, const char* path, int flags, mode_t mode) {
  Place place;
  const Found found = Find(directory, path, place);
  if (found == Found::kFailed) return -1;
  if (found == Found::kElsewhere) return next(directory, path, flags, mode);
  if (found == Found::kMachines) return next(AT_FDCWD, place.path, flags, mode);
  const bool is_written = (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)) != 0;
  if (const int error = WhyNotOpened(place, is_written); error != 0) return Fail(error);
  const int opened = next(AT_FDCWD, place.path, flags & ~O_CREAT, 0);
  if (opened >= 0 && place.file.is_directory != 0) NoteOpenDirectory();
  return opened;
}

mode_t ModeOf(int flags, va_list arguments) {
  const bool has_mode = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  return has_mode ? va_arg(arguments, mode_t) : 0;
}

template <class Stat>
int StatAt(int (*next)(int, const char*, Stat*, int), int directory, const char* path, Stat* out,
           int flags) {
  Place place;
  const Found found = Find(directory, path, place);
  if (found == Found::kFailed) return -1;
  if (found == Found::kElsewhere) return next(directory, path, out, flags);
  const int result = next(AT_FDCWD, place.path, out, flags);
  if (found == Found::kMachines || result != 0 || S_ISLNK(out->st_mode)) return result;
  const mode_t type = place.file.is_device != 0 ? S_IFCHR : out->st_mode & S_IFMT;
  out->st_mode = type | place.file.mode;
  if (place.file.is_device != 0) out->st_rdev = makedev(place.file.major, place.file.minor);
  return result;
}

using Fstatat = int(int, const char*, struct stat*, int);
using Fstatat64 = int(int, const char*, struct stat64*, int);

// C libraries before 2.33 have stat and similar functions by these names alone.
int OldFstatat(int directory, const char* path, struct stat* out, int flags) {
  return NEXT(int(int, int, const char*, struct stat*, int), "__fxstatat")(1, directory, path, out,
                                                                           flags);
}
int OldFstatat64(int directory, const char* path, struct stat64* out, int flags) {
  return NEXT(int(int, int, const char*, struct stat64*, int), "__fxstatat64")(1, directory, path,
                                                                               out, flags);
}
Fstatat* NextFstatat() {
  Fstatat* const next = NEXT(Fstatat, "fstatat");
  return next == nullptr ? OldFstatat : next;
}
Fstatat64* NextFstatat64() {
  Fstatat64* const next = NEXT(Fstatat64, "fstatat64");
  return next == nullptr ? OldFstatat64 : next;
}

FILE* OpenFile(FILE* (*next)(const char*, const char*), const char* path, const char* mode) {
  Place place;
  const Found found = Find(AT_FDCWD, path, place);
  if (found == Found::kFailed) return nullptr;
  if (found == Found::kElsewhere) return next(path, mode);
  if (found == Found::kMachines) return next(place.path, mode);
  const bool is_written = mode[0] != 'r' || strchr(mode, '+') != nullptr;
  if (const int error = WhyNotOpened(place, is_written); error != 0) {
    errno = error;
    return nullptr;
  }
  return next(place.path, mode);
}

FILE* Reopen(FILE* (*next)(const char*, const char*, FILE*), const char* path, const char* mode,
             FILE* stream) {
  Place place;
  const Found found = Find(AT_FDCWD, path, place);
  if (found == Found::kElsewhere) return next(path, mode, stream);
  if (found == Found::kMachines) return next(place.path, mode, stream);
  const bool is_written = mode[0] != 'r' || strchr(mode, '+') != nullptr;
  const int error = found == Found::kFailed ? errno : WhyNotOpened(place, is_written);
  if (error == 0) return next(place.path, mode, stream);
  fclose(stream);  // as freopen does on failure
  errno = error;
  return nullptr;
}

// Returns the path to use for a call that only reads the names, or nothing when it fails.
const char* PathFor(const char* path, Place& place) {
  switch (Find(AT_FDCWD, path, place)) {
    case Found::kElsewhere:
      return path;
    case Found::kMachines:
    case Found::kHere:
      return place.path;
    case Found::kFailed:
      return nullptr;
  }
  return nullptr;
}

template <class Next>
int Access(Next next, int directory, const char* path) {
  Place place;
  const Found found = Find(directory, path, place);
  if (found == Found::kFailed) return -1;
  if (found == Found::kElsewhere) return next(directory, path);
  return next(AT_FDCWD, static_cast<const char*>(place.path));
}

// Returns true if the link may lead to a copy, as /proc/self/fd/N may.
bool MayShowTheTree(int directory, const char* path) {
  return HasDirectories() &&
         (directory != AT_FDCWD || IsInTree() || strncmp(path, "/proc/", 6) == 0);
}

ssize_t ReadLink(int directory, const char* path, char* out, size_t bytes) {
  const auto next = NEXT(ssize_t(int, const char*, char*, size_t), "readlinkat");
  Place place;
  const Found found = bytes == 0 ? Found::kElsewhere : Find(directory, path, place);
  if (found == Found::kFailed) return -1;
  if (found == Found::kElsewhere && !MayShowTheTree(directory, path)) {
    return next(directory, path, out, bytes);
  }
  char target[PATH_MAX];
  ssize_t length = found == Found::kElsewhere ? next(directory, path, target, sizeof target)
                                              : next(AT_FDCWD, place.path, target, sizeof target);
  length = ShowAsSystem(target, length);
  if (length <= 0) return length;
  length = std::min(length, static_cast<ssize_t>(bytes));
  memcpy(out, target, static_cast<size_t>(length));
  return length;
}

char* RealPath(const char* path, char* out) {
  const auto next = NEXT(char*(const char*, char*), "realpath");
  Place place;
  const Found found = Find(AT_FDCWD, path, place);
  if (found == Found::kFailed) return nullptr;
  if (found == Found::kElsewhere && !IsInTree()) return next(path, out);
  // The copy's path is longer than the one that the program has room for.
  char real[PATH_MAX];
  if (next(found == Found::kElsewhere ? path : place.path, real) == nullptr) return nullptr;
  ShowAsSystem(real);
  return out == nullptr ? strdup(real) : strcpy(out, real);
}

// Returns the current directory's path as the program knows it. If `out` is null, the caller must
// free the result.
char* CurrentDirectory(char* out, size_t bytes) {
  const auto next = NEXT(char*(char*, size_t), "getcwd");
  if (!IsInTree()) return next(out, bytes);
  char real[PATH_MAX];
  if (next(real, sizeof real) == nullptr) return nullptr;
  ShowAsSystem(real);
  const size_t needed = strlen(real) + 1;
  if (out == nullptr && bytes == 0) return strdup(real);
  if (bytes < needed) {
    errno = out != nullptr && bytes == 0 ? EINVAL : ERANGE;
    return nullptr;
  }
  if (out == nullptr) out = static_cast<char*>(malloc(bytes));
  return out == nullptr ? nullptr : strcpy(out, real);
}

// glob(3) reads directories by these functions.
void* GlobOpen(const char* path) { return opendir(path); }
dirent* GlobRead(void* directory) { return readdir(static_cast<DIR*>(directory)); }
dirent64* GlobRead64(void* directory) { return readdir64(static_cast<DIR*>(directory)); }
void GlobClose(void* directory) { closedir(static_cast<DIR*>(directory)); }

}  // namespace

EXPORT int openat(int directory, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return Open(NEXT(OpenAt, "openat"), directory, path, flags, mode);
}

EXPORT int openat64(int directory, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return Open(NEXT(OpenAt, "openat64"), directory, path, flags, mode);
}

EXPORT int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return Open(NEXT(OpenAt, "openat"), AT_FDCWD, path, flags, mode);
}

EXPORT int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return Open(NEXT(OpenAt, "openat64"), AT_FDCWD, path, flags, mode);
}

EXPORT int __open_2(const char* path, int flags) { return open(path, flags); }
EXPORT int __open64_2(const char* path, int flags) { return open64(path, flags); }
EXPORT int __openat_2(int directory, const char* path, int flags) {
  return openat(directory, path, flags);
}
EXPORT int __openat64_2(int directory, const char* path, int flags) {
  return openat64(directory, path, flags);
}

EXPORT int creat(const char* path, mode_t mode) {
  return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
EXPORT int creat64(const char* path, mode_t mode) {
  return open64(path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

EXPORT FILE* fopen(const char* path, const char* mode) {
  return OpenFile(NEXT(FILE * (const char*, const char*), "fopen"), path, mode);
}
EXPORT FILE* fopen64(const char* path, const char* mode) {
  return OpenFile(NEXT(FILE * (const char*, const char*), "fopen64"), path, mode);
}
EXPORT FILE* freopen(const char* path, const char* mode, FILE* stream) {
  return Reopen(NEXT(FILE * (const char*, const char*, FILE*), "freopen"), path, mode, stream);
}
EXPORT FILE* freopen64(const char* path, const char* mode, FILE* stream) {
  return Reopen(NEXT(FILE * (const char*, const char*, FILE*), "freopen64"), path, mode, stream);
}

EXPORT int fstatat(int directory, const char* path, struct stat* out, int flags) noexcept {
  return StatAt(NextFstatat(), directory, path, out, flags);
}
EXPORT int fstatat64(int directory, const char* path, struct stat64* out, int flags) noexcept {
  return StatAt(NextFstatat64(), directory, path, out, flags);
}
EXPORT int stat(const char* path, struct stat* out) noexcept {
  return fstatat(AT_FDCWD, path, out, 0);
}
EXPORT int stat64(const char* path, struct stat64* out) noexcept {
  return fstatat64(AT_FDCWD, path, out, 0);
}
EXPORT int lstat(const char* path, struct stat* out) noexcept {
  return fstatat(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
EXPORT int lstat64(const char* path, struct stat64* out) noexcept {
  return fstatat64(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
EXPORT int __xstat(int, const char* path, struct stat* out) { return stat(path, out); }
EXPORT int __xstat64(int, const char* path, struct stat64* out) { return stat64(path, out); }
EXPORT int __lxstat(int, const char* path, struct stat* out) { return lstat(path, out); }
EXPORT int __lxstat64(int, const char* path, struct stat64* out) { return lstat64(path, out); }
EXPORT int __fxstatat(int, int directory, const char* path, struct stat* out, int flags) {
  return fstatat(directory, path, out, flags);
}
EXPORT int __fxstatat64(int, int directory, const char* path, struct stat64* out, int flags) {
  return fstatat64(directory, path, out, flags);
}

EXPORT int statx(int directory, const char* path, int flags, unsigned mask,
                 struct statx* out) noexcept {
  const auto next = NEXT(int(int, const char*, int, unsigned, struct statx*), "statx");
  Place place;
  const Found found = Find(directory, path, place);
  if (found == Found::kFailed) return -1;
  if (found == Found::kElsewhere) return next(directory, path, flags, mask, out);
  const int result = next(AT_FDCWD, place.path, flags, mask | STATX_TYPE, out);
  if (found == Found::kMachines || result != 0 || S_ISLNK(out->stx_mode)) return result;
  const mode_t type = place.file.is_device != 0 ? S_IFCHR : out->stx_mode & S_IFMT;
  out->stx_mode = static_cast<uint16_t>(type | place.file.mode);
  if (place.file.is_device != 0) {
    out->stx_rdev_major = place.file.major;
    out->stx_rdev_minor = place.file.minor;
  }
  return result;
}

EXPORT int access(const char* path, int mode) noexcept {
  const auto next = NEXT(int(const char*, int), "access");
  return Access([&](int, const char* at) { return next(at, mode); }, AT_FDCWD, path);
}
EXPORT int euidaccess(const char* path, int mode) noexcept {
  const auto next = NEXT(int(const char*, int), "euidaccess");
  return Access([&](int, const char* at) { return next(at, mode); }, AT_FDCWD, path);
}
EXPORT int eaccess(const char* path, int mode) noexcept { return euidaccess(path, mode); }
EXPORT int faccessat(int directory, const char* path, int mode, int flags) noexcept {
  const auto next = NEXT(int(int, const char*, int, int), "faccessat");
  return Access([&](int from, const char* at) { return next(from, at, mode, flags); }, directory,
                path);
}

EXPORT ssize_t readlinkat(int directory, const char* path, char* out, size_t bytes) noexcept {
  return ReadLink(directory, path, out, bytes);
}
EXPORT ssize_t readlink(const char* path, char* out, size_t bytes) noexcept {
  return ReadLink(AT_FDCWD, path, out, bytes);
}
EXPORT ssize_t __readlink_chk(const char* path, char* out, size_t bytes, size_t room) {
  if (bytes > room) abort();
  return ReadLink(AT_FDCWD, path, out, bytes);
}
EXPORT ssize_t __readlinkat_chk(int directory, const char* path, char* out, size_t bytes,
                                size_t room) {
  if (bytes > room) abort();
  return ReadLink(directory, path, out, bytes);
}

EXPORT char* realpath(const char* path, char* out) noexcept { return RealPath(path, out); }
EXPORT char* __realpath_chk(const char* path, char* out, size_t room) {
  if (room < PATH_MAX) abort();  // as the C library's function
  return RealPath(path, out);
}
EXPORT char* canonicalize_file_name(const char* path) noexcept { return RealPath(path, nullptr); }

EXPORT int chdir(const char* path) noexcept {
  Place place;
  const Found found = Find(AT_FDCWD, path, place);
  if (found == Found::kFailed) return -1;
  const char* const at = found == Found::kElsewhere ? path : place.path;
  const int result = NEXT(int(const char*), "chdir")(at);
  if (result == 0) NoteChdir(found);
  return result;
}
EXPORT int fchdir(int directory) noexcept {
  const int result = NEXT(int(int), "fchdir")(directory);
  if (result == 0 && HasDirectories()) NoteFchdir();
  return result;
}
EXPORT char* getwd(char* out) noexcept { return CurrentDirectory(out, PATH_MAX); }
EXPORT char* getcwd(char* out, size_t bytes) noexcept { return CurrentDirectory(out, bytes); }
EXPORT char* __getcwd_chk(char* out, size_t bytes, size_t room) {
  if (bytes > room) abort();
  return CurrentDirectory(out, bytes);
}
EXPORT char* get_current_dir_name() noexcept {
  return IsInTree() ? CurrentDirectory(nullptr, 0) : NEXT(char*(), "get_current_dir_name")();
}

EXPORT DIR* opendir(const char* path) {
  Place place;
  const Found found = Find(AT_FDCWD, path, place);
  if (found == Found::kFailed) return nullptr;
  const char* const at = found == Found::kElsewhere ? path : place.path;
  DIR* const opened = NEXT(DIR * (const char*), "opendir")(at);
  if (opened != nullptr && found == Found::kHere) NoteOpenDirectory();
  return opened;
}

// Functions for a path's file system and extended attributes.
#define FORWARD(type, name, path, ...)         \
  Place place;                                 \
  const char* const at = PathFor(path, place); \
  return at == nullptr ? -1 : NEXT(type, name)(at, __VA_ARGS__)
EXPORT int statfs(const char* path, struct statfs* out) noexcept {
  FORWARD(int(const char*, struct statfs*), "statfs", path, out);
}
EXPORT int statfs64(const char* path, struct statfs64* out) noexcept {
  FORWARD(int(const char*, struct statfs64*), "statfs64", path, out);
}
EXPORT int statvfs(const char* path, struct statvfs* out) noexcept {
  FORWARD(int(const char*, struct statvfs*), "statvfs", path, out);
}
EXPORT int statvfs64(const char* path, struct statvfs64* out) noexcept {
  FORWARD(int(const char*, struct statvfs64*), "statvfs64", path, out);
}
using GetXattr = ssize_t(const char*, const char*, void*, size_t);
EXPORT ssize_t getxattr(const char* path, const char* name, void* out, size_t bytes) noexcept {
  FORWARD(GetXattr, "getxattr", path, name, out, bytes);
}
EXPORT ssize_t lgetxattr(const char* path, const char* name, void* out, size_t bytes) noexcept {
  FORWARD(GetXattr, "lgetxattr", path, name, out, bytes);
}
using ListXattr = ssize_t(const char*, char*, size_t);
EXPORT ssize_t listxattr(const char* path, char* out, size_t bytes) noexcept {
  FORWARD(ListXattr, "listxattr", path, out, bytes);
}
EXPORT ssize_t llistxattr(const char* path, char* out, size_t bytes) noexcept {
  FORWARD(ListXattr, "llistxattr", path, out, bytes);
}
#undef FORWARD

template <class Entry>
using Scan = int(const char*, Entry***, int (*)(const Entry*),
                 int (*)(const Entry**, const Entry**));

EXPORT int scandir(const char* path, dirent*** out, int (*filter)(const dirent*),
                   int (*order)(const dirent**, const dirent**)) {
  Place place;
  const char* const at = PathFor(path, place);
  return at == nullptr ? -1 : NEXT(Scan<dirent>, "scandir")(at, out, filter, order);
}
EXPORT int scandir64(const char* path, dirent64*** out, int (*filter)(const dirent64*),
                     int (*order)(const dirent64**, const dirent64**)) {
  Place place;
  const char* const at = PathFor(path, place);
  return at == nullptr ? -1 : NEXT(Scan<dirent64>, "scandir64")(at, out, filter, order);
}

// The results have the names that the program knows, because the C library calls our functions.
EXPORT int glob(const char* pattern, int flags, int (*failed)(const char*, int),
                glob_t* out) noexcept {
  const auto next = NEXT(int(const char*, int, int (*)(const char*, int), glob_t*), "glob");
  if ((flags & GLOB_ALTDIRFUNC) != 0) return next(pattern, flags, failed, out);
  out->gl_opendir = GlobOpen;
  out->gl_readdir = GlobRead;
  out->gl_closedir = GlobClose;
  out->gl_lstat = lstat;
  out->gl_stat = stat;
  return next(pattern, flags | GLOB_ALTDIRFUNC, failed, out);
}
EXPORT int glob64(const char* pattern, int flags, int (*failed)(const char*, int),
                  glob64_t* out) noexcept {
  const auto next = NEXT(int(const char*, int, int (*)(const char*, int), glob64_t*), "glob64");
  if ((flags & GLOB_ALTDIRFUNC) != 0) return next(pattern, flags, failed, out);
  out->gl_opendir = GlobOpen;
  out->gl_readdir = GlobRead64;
  out->gl_closedir = GlobClose;
  out->gl_lstat = lstat64;
  out->gl_stat = stat64;
  return next(pattern, flags | GLOB_ALTDIRFUNC, failed, out);
}
