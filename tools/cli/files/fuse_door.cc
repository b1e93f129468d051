#include "tools/cli/files/fuse_door.h"

#define FUSE_USE_VERSION 314
#include <fuse3/fuse.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

namespace rdmaemu::cli {
namespace {

constexpr off_t kTextFileBytes = 4096;  // as sysfs shows every file

const HostFiles& Files() {
  return *static_cast<const HostFiles*>(fuse_get_context()->private_data);
}

mode_t TypeOf(FileKind kind) {
  switch (kind) {
    case FileKind::kDirectory:
      return S_IFDIR;
    case FileKind::kText:
      return S_IFREG;
    case FileKind::kLink:
      return S_IFLNK;
    case FileKind::kCharacterDevice:
      return S_IFCHR;
  }
  return 0;
}

void* Begin(fuse_conn_info*, fuse_config* config) {
  // Devices come and go, so that nothing may be cached.
  config->attr_timeout = 0;
  config->entry_timeout = 0;
  config->negative_timeout = 0;
  config->direct_io = 1;  // a file's length is known only when it is read
  return fuse_get_context()->private_data;
}

int GetAttributes(const char* path, struct stat* out, fuse_file_info*) {
  const Result<HostFile> file = Files().At(path);
  if (!file) return -file.error().code;
  *out = {};
  out->st_mode = TypeOf(file->kind) | file->mode;
  out->st_nlink = file->kind == FileKind::kDirectory ? 2 : 1;
  out->st_uid = getuid();
  out->st_gid = getgid();
  if (file->kind == FileKind::kText) out->st_size = kTextFileBytes;
  if (file->kind == FileKind::kCharacterDevice) out->st_rdev = makedev(file->major, file->minor);
  return 0;
}

int ReadDirectory(const char* path, void* buffer, fuse_fill_dir_t fill, off_t, fuse_file_info*,
                  fuse_readdir_flags) {
  const Result<HostFile> file = Files().At(path);
  if (!file) return -file.error().code;
  if (file->kind != FileKind::kDirectory) return -ENOTDIR;
  const auto add = [&](const char* name, mode_t mode) {
    struct stat attributes {};
    attributes.st_mode = mode;
    fill(buffer, name, &attributes, 0, fuse_fill_dir_flags{});
  };
  add(".", S_IFDIR);
  add("..", S_IFDIR);
  for (const auto& [name, kind] : file->entries) add(name.c_str(), TypeOf(kind));
  return 0;
}

int ReadLink(const char* path, char* out, size_t bytes) {
  const Result<HostFile> file = Files().At(path);
  if (!file) return -file.error().code;
  if (file->kind != FileKind::kLink || bytes == 0) return -EINVAL;
  const size_t length = std::min(file->text.size(), bytes - 1);
  std::memcpy(out, file->text.data(), length);
  out[length] = '\0';
  return 0;
}

HostFile* OpenFile(const fuse_file_info* info) { return reinterpret_cast<HostFile*>(info->fh); }

int Open(const char* path, fuse_file_info* info) {
  if ((info->flags & O_ACCMODE) != O_RDONLY) return -EACCES;
  Result<HostFile> file = Files().At(path);
  if (!file) return -file.error().code;
  info->fh = reinterpret_cast<uint64_t>(new HostFile(std::move(*file)));
  return 0;
}

// The text is that of the time of a read from the file's beginning, as in sysfs.
int Read(const char* path, char* out, size_t bytes, off_t offset, fuse_file_info* info) {
  HostFile& open = *OpenFile(info);
  if (offset == 0) {
    Result<HostFile> now = Files().At(path);
    if (!now) return now.error().code == ENOENT ? -ENODEV : -now.error().code;
    open = std::move(*now);
  }
  if (open.read_error != 0) return -open.read_error;
  const auto from = static_cast<size_t>(offset);
  if (from >= open.text.size()) return 0;
  const size_t length = std::min(bytes, open.text.size() - from);
  std::memcpy(out, open.text.data() + from, length);
  return static_cast<int>(length);
}

int Release(const char*, fuse_file_info* info) {
  delete OpenFile(info);
  return 0;
}

constexpr fuse_operations Operations() {
  fuse_operations operations{};
  operations.getattr = GetAttributes;
  operations.readlink = ReadLink;
  operations.open = Open;
  operations.read = Read;
  operations.release = Release;
  operations.readdir = ReadDirectory;
  operations.init = Begin;
  return operations;
}
constexpr fuse_operations kOperations = Operations();

}  // namespace

bool ServeFuse(int fuse_fd, const HostFiles& files) {
  char name[] = "rdmaemu";
  char* arguments[] = {name, nullptr};
  fuse_args all = FUSE_ARGS_INIT(1, arguments);
  fuse* const made = fuse_new(&all, &kOperations, sizeof kOperations,
                              const_cast<HostFiles*>(&files));  // it becomes private_data
  if (made == nullptr) return false;
  const std::string mounted = "/dev/fd/" + std::to_string(fuse_fd);  // libfuse mounts nothing then
  const bool is_served = fuse_mount(made, mounted.c_str()) == 0 && fuse_loop(made) == 0;
  fuse_destroy(made);
  return is_served;
}

}  // namespace rdmaemu::cli
