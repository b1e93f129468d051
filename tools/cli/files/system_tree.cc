#include "tools/cli/files/system_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

namespace rdmaemu::cli {
namespace {

// The entries of /sys/class and /sys/devices/virtual that show only our devices. A class that the
// host does not have is hidden, because it describes the machine's own devices.
constexpr const char* kOurClasses[] = {"infiniband", "infiniband_mad", "infiniband_verbs"};
constexpr const char* kHiddenClasses[] = {"infiniband", "infiniband_cm", "infiniband_mad",
                                          "infiniband_verbs", "misc"};

// The machine's /dev, for files that must be opened there.
constexpr const char* kHiddenNodes = ".machine";

std::string Failed(const std::string& what) { return what + ": " + std::strerror(errno); }

bool IsDirectory(const std::string& path) {
  struct stat found {};
  return stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

std::vector<std::string> NamesIn(const std::string& path) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(path.c_str()), closedir);
  if (!directory) return names;
  while (const dirent* const entry = readdir(directory.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  return names;
}

// Shows `from` also at `to`. Copies a link, and binds any other file.
std::string ShowAlso(const std::string& from, const std::string& to) {
  struct stat found {};
  if (lstat(from.c_str(), &found) != 0) return errno == ENOENT ? "" : Failed(from);
  if (S_ISLNK(found.st_mode)) {
    std::array<char, PATH_MAX> target{};
    const ssize_t length = readlink(from.c_str(), target.data(), target.size() - 1);
    if (length < 0 || symlink(target.data(), to.c_str()) != 0) return Failed(to);
    return {};
  }
  if (S_ISDIR(found.st_mode)) {
    if (mkdir(to.c_str(), 0755) != 0) return Failed(to);
  } else {
    const int file = open(to.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    if (file < 0) return Failed(to);
    close(file);
  }
  if (mount(from.c_str(), to.c_str(), nullptr, MS_BIND | MS_REC, nullptr) == 0) return {};
  return errno == ENOENT ? "" : Failed("bind " + from);  // it was removed in between
}

// Shows all entries of a directory in another directory, except those of a list.
template <class Names>
std::string ShowAll(const std::string& from, const std::string& to, const Names& but) {
  for (const std::string& name : NamesIn(from)) {
    if (std::ranges::find(but, name) != std::end(but)) continue;
    if (const std::string why = ShowAlso(from + "/" + name, to + "/" + name); !why.empty()) {
      return why;
    }
  }
  return {};
}

// Shows the directory at its place, read-only. The machine would not see entries that are added
// here.
std::string Place(const std::string& made, const std::string& at) {
  if (mount(made.c_str(), at.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0) {
    return Failed("bind " + at);
  }
  constexpr unsigned long kReadOnly = MS_REMOUNT | MS_BIND | MS_NOSUID | MS_RDONLY;
  return mount(nullptr, at.c_str(), nullptr, kReadOnly, nullptr) == 0 ? ""
                                                                      : Failed("remount " + at);
}

// The kernel searches for the terminals in "pts" beside the file that was opened as /dev/ptmx. It
// finds nothing beside a node that is bound alone.
std::string ShowTerminals(const std::string& machine, const std::string& made) {
  const std::string node = machine + "/ptmx", shown = made + "/ptmx";
  struct stat found {};
  if (lstat(node.c_str(), &found) != 0) return {};
  if (S_ISLNK(found.st_mode)) return ShowAlso(node, shown);
  if (mknod(shown.c_str(), found.st_mode, found.st_rdev) == 0) {
    return chmod(shown.c_str(), found.st_mode & 0777) == 0 ? "" : Failed(shown);
  }
  // An ordinary user cannot create a node. A hidden directory therefore shows the machine's node
  // together with its neighbour.
  const std::string hidden = made + "/" + kHiddenNodes;
  if (mkdir(hidden.c_str(), 0755) != 0 ||
      mount(machine.c_str(), hidden.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0) {
    return Failed("bind " + hidden);
  }
  return symlink((std::string(kHiddenNodes) + "/ptmx").c_str(), shown.c_str()) == 0 ? ""
                                                                                    : Failed(shown);
}

}  // namespace

std::string SystemTree::MountFuse(int fuse_fd) {
  // Later mounts of the machine also appear here. Mounts of this namespace do not appear outside.
  if (mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0) return Failed("mount /");
  // The mode is that of /dev. The default of 1777 makes the kernel refuse O_CREAT on /dev/null.
  if (mount("rdmaemu", scratch_.c_str(), "tmpfs", MS_NOSUID, "mode=755") != 0) {
    return Failed("mount tmpfs");
  }
  for (const char* const name : {"/fuse", "/class", "/virtual", "/dev"}) {
    if (mkdir((scratch_ + name).c_str(), 0755) != 0) return Failed(scratch_ + name);
  }
  const std::string options =
      "fd=" + std::to_string(fuse_fd) + ",rootmode=40000,user_id=" + std::to_string(geteuid()) +
      ",group_id=" + std::to_string(getegid()) + ",allow_other,default_permissions";
  if (mount("rdmaemu", (scratch_ + "/fuse").c_str(), "fuse.rdmaemu", MS_NOSUID | MS_NODEV,
            options.c_str()) != 0) {
    return Failed("mount fuse");
  }
  return {};
}

std::string SystemTree::ShowClasses(const std::string& machine, const std::string& made) {
  if (!IsDirectory(machine)) return machine + " is missing";
  if (const std::string why = ShowAll(machine, made, kHiddenClasses); !why.empty()) return why;
  for (const std::string name : kOurClasses) {
    const std::string why = ShowAlso(Ours(machine + "/" + name), made + "/" + name);
    if (!why.empty()) return why;
  }
  if (mkdir((made + "/misc").c_str(), 0755) != 0) return Failed(made);
  const std::array<std::string, 1> ours = {"rdma_cm"};
  if (const std::string why = ShowAll(machine + "/misc", made + "/misc", ours); !why.empty()) {
    return why;
  }
  const std::string why = ShowAlso(Ours(machine + "/misc/rdma_cm"), made + "/misc/rdma_cm");
  return why.empty() ? Place(made, machine) : why;
}

std::string SystemTree::ShowNodes() {
  const std::string nodes = scratch_ + "/dev", machine = "/dev";
  const std::array<std::string, 2> other = {"infiniband", "ptmx"};
  if (const std::string why = ShowAll(machine, nodes, other); !why.empty()) return why;
  if (const std::string why = ShowTerminals(machine, nodes); !why.empty()) return why;
  const std::string why = ShowAlso(Ours("/dev/infiniband"), nodes + "/infiniband");
  return why.empty() ? Place(nodes, machine) : why;
}

std::string SystemTree::Show() {
  if (const std::string why = ShowClasses("/sys/class", scratch_ + "/class"); !why.empty()) {
    return why;
  }
  // The links in a class lead to this directory.
  if (const std::string why = ShowClasses("/sys/devices/virtual", scratch_ + "/virtual");
      !why.empty()) {
    return why;
  }
  if (const std::string why = ShowNodes(); !why.empty()) return why;
  return umount2(scratch_.c_str(), MNT_DETACH) == 0 ? "" : Failed("umount");
}

}  // namespace rdmaemu::cli
