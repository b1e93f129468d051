#include "tools/cli/files/fuse_door.h"

#define FUSE_USE_VERSION 314
#include <fuse3/fuse.h>
#include <fuse3/fuse_log.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace rdmaemu::cli {
namespace {

struct OpenFile {
  std::mutex mutex;  // several threads of a program may read one open file
  std::string path;
  HostFile file;
  std::unique_ptr<Stream> stream;
  std::atomic<uint64_t> read_to = 0;  // of a stream: how far it has been read
};

// The contents of one mount. Open streams are listed, because fstat(2) asks by path. A program can
// thus read the rest of a stream whose host has ended.
struct Served {
  FileTree& files;
  std::mutex mutex;
  std::multimap<std::string, OpenFile*> streams;
};

Served& All() { return *static_cast<Served*>(fuse_get_context()->private_data); }
FileTree& Files() { return All().files; }

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
  // Devices are added and removed, so nothing may be cached.
  config->attr_timeout = 0;
  config->entry_timeout = 0;
  config->negative_timeout = 0;
  config->direct_io = 1;    // a file's length is known only when it is read
  config->hard_remove = 1;  // an open file that is removed is not renamed
  return fuse_get_context()->private_data;
}

// Returns the length of an open stream that some program has not read completely.
std::optional<uint64_t> UnreadStream(const char* path) {
  Served& all = All();
  const std::lock_guard lock(all.mutex);
  const auto [begin, end] = all.streams.equal_range(path);
  for (auto it = begin; it != end; ++it) {
    const uint64_t bytes = it->second->stream->bytes();
    if (bytes > it->second->read_to) return bytes;
  }
  return std::nullopt;
}

int GetAttributes(const char* path, struct stat* out, fuse_file_info*) {
  Result<HostFile> file = Files().At(path);
  if (!file) {
    const std::optional<uint64_t> unread = UnreadStream(path);
    if (!unread) return -file.error().code;
    file = HostFile{};
    file->kind = FileKind::kText;
    file->mode = 0400;
    file->bytes = *unread;
  }
  *out = {};
  out->st_mode = TypeOf(file->kind) | file->mode;
  out->st_nlink = file->kind == FileKind::kDirectory ? 2 : 1;
  out->st_uid = getuid();
  out->st_gid = getgid();
  if (file->kind == FileKind::kText) out->st_size = static_cast<off_t>(file->bytes);
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

OpenFile* OpenOf(const fuse_file_info* info) { return reinterpret_cast<OpenFile*>(info->fh); }

int Open(const char* path, fuse_file_info* info) {
  Result<HostFile> file = Files().At(path);
  if (!file) return -file.error().code;
  // The mode alone does not refuse root.
  if ((info->flags & O_ACCMODE) != O_RDONLY && (file->mode & 0200) == 0) return -EACCES;
  auto open = std::make_unique<OpenFile>();
  open->path = path;
  open->file = std::move(*file);
  if (open->file.is_stream) {
    Result<std::unique_ptr<Stream>> stream = Files().OpenStream(path);
    if (!stream) return -stream.error().code;
    open->stream = std::move(*stream);
    const std::lock_guard lock(All().mutex);
    All().streams.emplace(path, open.get());
  }
  info->fh = reinterpret_cast<uint64_t>(open.release());
  return 0;
}

int ReadStream(OpenFile& open, char* out, size_t bytes, off_t offset) {
  const auto from = static_cast<uint64_t>(offset);
  const Result<size_t> got = open.stream->Read(from, {out, bytes});
  if (!got) return -got.error().code;
  open.read_to = std::max(open.read_to.load(), from + *got);
  return static_cast<int>(*got);
}

// Reads from the text of the latest read at the file's beginning, as in sysfs.
int Read(const char* path, char* out, size_t bytes, off_t offset, fuse_file_info* info) {
  OpenFile& open = *OpenOf(info);
  const std::lock_guard lock(open.mutex);
  if (open.stream) return ReadStream(open, out, bytes, offset);
  if (offset == 0) {
    Result<HostFile> now = Files().At(path);
    if (!now) return now.error().code == ENOENT ? -ENODEV : -now.error().code;
    open.file = std::move(*now);
  }
  if (open.file.read_error != 0) return -open.file.read_error;
  const auto from = static_cast<size_t>(offset);
  if (from >= open.file.text.size()) return 0;
  const size_t length = std::min(bytes, open.file.text.size() - from);
  std::memcpy(out, open.file.text.data() + from, length);
  return static_cast<int>(length);
}

// Executes one command per write(2), at any offset.
int Write(const char* path, const char* text, size_t bytes, off_t, fuse_file_info*) {
  const Status done = Files().Write(path, {text, bytes});
  return done ? static_cast<int>(bytes) : -done.error().code;
}

// Supports the > of a shell. A file that takes commands has no contents to truncate.
int Truncate(const char* path, off_t, fuse_file_info*) {
  const Result<HostFile> file = Files().At(path);
  if (!file) return -file.error().code;
  return (file->mode & 0200) == 0 ? -EACCES : 0;
}

int Unlink(const char* path) {
  const Status done = Files().Remove(path);
  return done ? 0 : -done.error().code;
}

int Release(const char*, fuse_file_info* info) {
  const std::unique_ptr<OpenFile> open(OpenOf(info));
  if (!open->stream) return 0;
  Served& all = All();
  const std::lock_guard lock(all.mutex);
  const auto [begin, end] = all.streams.equal_range(open->path);
  for (auto it = begin; it != end; ++it) {
    if (it->second != open.get()) continue;
    all.streams.erase(it);
    break;
  }
  return 0;
}

constexpr fuse_operations Operations() {
  fuse_operations operations{};
  operations.getattr = GetAttributes;
  operations.readlink = ReadLink;
  operations.unlink = Unlink;
  operations.truncate = Truncate;
  operations.open = Open;
  operations.read = Read;
  operations.write = Write;
  operations.release = Release;
  operations.readdir = ReadDirectory;
  operations.init = Begin;
  return operations;
}
constexpr fuse_operations kOperations = Operations();

using Session = std::unique_ptr<fuse, decltype(&fuse_destroy)>;

Session NewSession(Served& served, const char* options) {
  std::string words[] = {"rdmaemu", "-o", options == nullptr ? "" : options};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  fuse_args all = FUSE_ARGS_INIT(options == nullptr ? 1 : 3, arguments);
  return {fuse_new(&all, &kOperations, sizeof kOperations, &served), fuse_destroy};
}

// The first message of libfuse, which says why a mount is refused.
std::string& LibraryMessage() {
  static std::string message;
  return message;
}

void KeepMessage(fuse_log_level, const char* format, va_list arguments) {
  std::array<char, 512> text{};
  (void)vsnprintf(text.data(), text.size(), format, arguments);
  if (!LibraryMessage().empty()) return;
  LibraryMessage() = text.data();
  while (LibraryMessage().ends_with('\n')) LibraryMessage().pop_back();
}

}  // namespace

bool ServeFuse(int fuse_fd, FileTree& files) {
  Served served{.files = files, .mutex = {}, .streams = {}};
  const Session made = NewSession(served, nullptr);
  if (!made) return false;
  const std::string mounted = "/dev/fd/" + std::to_string(fuse_fd);  // libfuse mounts nothing then
  return fuse_mount(made.get(), mounted.c_str()) == 0 && fuse_loop(made.get()) == 0;
}

std::string MountFuse(const std::string& directory, FileTree& files,
                      const std::function<void()>& mounted) {
  Served served{.files = files, .mutex = {}, .streams = {}};
  const std::string options =
      std::string("fsname=") + kMountSource + ",subtype=rdmaemu,default_permissions";
  fuse_set_log_func(KeepMessage);
  const Session made = NewSession(served, options.c_str());
  if (!made || fuse_mount(made.get(), directory.c_str()) != 0) {
    fuse_set_log_func(nullptr);
    return LibraryMessage().empty() ? "libfuse gives no reason" : LibraryMessage();
  }
  fuse_set_log_func(nullptr);
  fuse_set_signal_handlers(fuse_get_session(made.get()));
  mounted();
  fuse_loop_config* const config = fuse_loop_cfg_create();
  const int result = fuse_loop_mt(made.get(), config);  // a signal's number, or -errno
  fuse_loop_cfg_destroy(config);
  fuse_remove_signal_handlers(fuse_get_session(made.get()));
  fuse_unmount(made.get());
  return result < 0 ? std::string("serving the files ended: ") + std::strerror(-result) : "";
}

}  // namespace rdmaemu::cli
