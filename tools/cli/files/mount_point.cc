#include "tools/cli/files/mount_point.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tools/cli/files/fuse_door.h"
#include "tools/cli/files/keep_only.h"

namespace rdmaemu::cli {
namespace {

namespace fs = std::filesystem;

// Replaces \040 and other escapes of mountinfo by their characters.
std::string WithoutEscapes(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); i++) {
    const bool is_escape = text[i] == '\\' && i + 3 < text.size();
    if (is_escape) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                 (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

struct Mount {
  MountPoint point;
  bool is_ours;
};

// Parses a line of /proc/self/mountinfo (proc(5)).
std::optional<Mount> ParseMount(const std::string& line) {
  std::istringstream fields(line);
  std::string id, parent, device, root, directory, word, type, source;
  fields >> id >> parent >> device >> root >> directory;
  while (fields >> word && word != "-") {
  }
  if (!(fields >> type >> source)) return std::nullopt;
  return Mount{{WithoutEscapes(directory), device},
               type == "fuse.rdmaemu" && source == kMountSource};
}

std::vector<Mount> AllMounts() {
  std::vector<Mount> mounts;
  std::ifstream file("/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    if (auto mount = ParseMount(line)) mounts.push_back(std::move(*mount));
  }
  return mounts;
}

// Unmounts by fusermount3, which ordinary users may do. Returns its error text.
std::string AskFusermount(const std::string& directory, bool is_lazy) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return std::strerror(errno);
  const runtime::UniqueFd read_end(ends[0]);
  runtime::UniqueFd write_end(ends[1]);
  const pid_t child = fork();
  if (child < 0) return std::strerror(errno);
  if (child == 0) {
    dup2(write_end.get(), STDERR_FILENO);
    if (is_lazy) {
      execlp("fusermount3", "fusermount3", "-u", "-z", "--", directory.c_str(), nullptr);
    } else {
      execlp("fusermount3", "fusermount3", "-u", "--", directory.c_str(), nullptr);
    }
    static constexpr char kMissing[] = "fusermount3 is not installed (package fuse3)";
    (void)!write(STDERR_FILENO, kMissing, sizeof kMissing - 1);
    _exit(127);
  }
  write_end.Reset();
  std::string said;
  std::array<char, 512> chunk;
  for (ssize_t got; (got = read(read_end.get(), chunk.data(), chunk.size())) != 0;) {
    if (got > 0) said.append(chunk.data(), static_cast<size_t>(got));
    if (got < 0 && errno != EINTR) break;
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  while (said.ends_with('\n')) said.pop_back();
  return said.empty() ? "fusermount3 failed" : said;
}

// Runs in the child.
[[noreturn]] void AwaitEndAndUnmount(int pipe, const std::string& directory) {
  const int kept = BecomeServer("rdmaemu-unmount", pipe);
  std::string device;
  std::array<char, 512> chunk;
  for (ssize_t got; (got = read(kept, chunk.data(), chunk.size())) != 0;) {
    if (got > 0) device.append(chunk.data(), static_cast<size_t>(got));
    if (got < 0 && errno != EINTR) break;
  }
  // A process that was killed right after mounting has reported nothing. Its mount is the only one.
  // What Release has reported is no device, also behind that of Report.
  const std::optional<MountPoint> mount = MountOn(directory);
  if (mount && (device.empty() || mount->device == device)) (void)RemoveMount(directory, true);
  _exit(0);
}

}  // namespace

std::vector<MountPoint> MountsOfHosts() {
  std::vector<MountPoint> ours;
  for (Mount& mount : AllMounts()) {
    if (mount.is_ours) ours.push_back(std::move(mount.point));
  }
  return ours;
}

std::optional<MountPoint> MountOn(const std::string& directory) {
  std::optional<MountPoint> found;
  for (Mount& mount : AllMounts()) {
    if (mount.point.directory != directory) continue;
    found = mount.is_ours ? std::optional(std::move(mount.point)) : std::nullopt;
  }
  return found;
}

std::string AbsoluteDirectory(const std::string& directory) {
  std::error_code error;
  fs::path path = fs::absolute(directory, error).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "DIR/"
  const fs::path whole = fs::canonical(path, error);
  if (!error) return whole.string();
  const fs::path parent = fs::canonical(path.parent_path(), error);
  return error ? path.string() : (parent / path.filename()).string();
}

std::string RemoveMount(const std::string& directory, bool is_lazy) {
  const int flags = UMOUNT_NOFOLLOW | (is_lazy ? MNT_DETACH : 0);
  if (umount2(directory.c_str(), flags) == 0) return {};
  return errno == EPERM ? AskFusermount(directory, is_lazy) : std::strerror(errno);
}

MountGuard::MountGuard(const std::string& directory) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  runtime::UniqueFd read_end(ends[0]), write_end(ends[1]);
  const pid_t child = fork();
  if (child == 0) AwaitEndAndUnmount(read_end.get(), directory);
  if (child > 0) pipe_ = std::move(write_end);
}

void MountGuard::Report(const std::string& device) {
  if (pipe_) (void)!write(pipe_.get(), device.data(), device.size());
}

}  // namespace rdmaemu::cli
