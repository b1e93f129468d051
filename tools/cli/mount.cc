// `rdmaemu mount` and `rdmaemu unmount`: the running hosts as files (docs/mount.md).
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "emulator/runtime/daemonize.h"
#include "tools/cli/commands.h"
#include "tools/cli/files/fuse_door.h"
#include "tools/cli/files/mount_point.h"
#include "tools/cli/mounted_hosts.h"

namespace rdmaemu::cli {
namespace {

// How long a mount waits for the guard of a process that was killed to remove that process's mount.
constexpr auto kAwaitGuardFor = std::chrono::seconds(2);

bool IsServed(const std::string& directory) {
  struct stat found;
  return stat(directory.c_str(), &found) == 0;
}

// Waits while a mount remains whose process has ended.
void AwaitGuard(const std::string& directory) {
  using std::chrono::milliseconds, std::chrono::steady_clock;
  const auto until = steady_clock::now() + kAwaitGuardFor;
  const runtime::UniqueFd table(open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC));
  while (MountOn(directory) && !IsServed(directory)) {
    const auto left = std::chrono::duration_cast<milliseconds>(until - steady_clock::now());
    pollfd change{table.get(), POLLPRI, 0};
    if (left.count() <= 0 || poll(&change, 1, static_cast<int>(left.count())) <= 0) return;
  }
}

// Returns the reason why nothing can be mounted on the directory, if there is one.
std::string WhyNot(const std::string& directory) {
  struct stat found;
  if (MountOn(directory)) {
    const bool is_served = IsServed(directory);
    return "the hosts are mounted on " + directory + " already" +
           (is_served ? std::string() : ", by a process that has ended") +
           "; remove that mount with: rdmaemu unmount " + directory;
  }
  if (stat(directory.c_str(), &found) != 0) {
    return "cannot mount on " + directory + ": " + std::strerror(errno) +
           (errno == ENOENT ? "; make it with: mkdir -p " + directory : std::string());
  }
  if (!S_ISDIR(found.st_mode)) {
    return "cannot mount on " + directory + ": it is not a directory; name an existing directory";
  }
  return {};
}

std::string MountFailed(const std::string& directory, const std::string& why) {
  return "cannot mount on " + directory + ": " + why +
         "; mounting needs /dev/fuse, and root or fusermount3 (package fuse3)";
}

void RemoveEmptyLog(const std::string& path) {
  struct stat log;
  if (stat(path.c_str(), &log) == 0 && log.st_size == 0) unlink(path.c_str());
}

}  // namespace

int Mount(const std::string& given, bool is_foreground) {
  const auto registry = runtime::Registry::Open();
  if (!registry) return Fail(kFailed, registry.error());
  const std::string directory = AbsoluteDirectory(given);
  AwaitGuard(directory);
  if (const std::string why = WhyNot(directory); !why.empty()) return Fail(kFailed, why);
  // The file of a host always has an extension, so this name is free.
  const std::string log = registry->directory() + "/mount-log";
  runtime::ReadyNotice notice;
  if (!is_foreground) {
    const auto say = [&] {
      fprintf(stderr, "note: %s is not mounted yet; see %s\n", directory.c_str(), log.c_str());
    };
    runtime::DaemonizeResult result =
        runtime::Daemonize(log, runtime::UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)), {say});
    if (!result.in_daemon) {
      return result.outcome ? 0 : Fail(kFailed, result.outcome.error());
    }
    notice = std::move(result.notice);
  }
  MountGuard guard(directory);
  MountedHosts hosts(*registry);
  MountTree tree(hosts);
  bool is_mounted = false;
  const std::string why = MountFuse(directory, tree, [&] {
    is_mounted = true;
    if (const auto mount = MountOn(directory)) guard.Report(mount->device);
    notice.Ready();
  });
  guard.Release();  // libfuse has unmounted the directory
  if (!is_mounted) {
    notice.Failed(MountFailed(directory, why));
    RemoveEmptyLog(log);
    return is_foreground ? Fail(kFailed, MountFailed(directory, why)) : kFailed;
  }
  if (!why.empty()) return Fail(kFailed, why);
  if (!is_foreground) RemoveEmptyLog(log);
  return 0;
}

int Unmount(const std::string& given, bool is_lazy) {
  const std::string directory = AbsoluteDirectory(given);
  if (!MountOn(directory)) {
    std::string mounted;
    for (const MountPoint& mount : MountsOfHosts()) {
      mounted += (mounted.empty() ? "" : ", ") + mount.directory;
    }
    return Fail(kFailed, "no hosts are mounted on " + directory +
                             "; mounted: " + (mounted.empty() ? "none" : mounted));
  }
  const std::string why = RemoveMount(directory, is_lazy);
  if (why.empty()) return 0;
  return Fail(kFailed, "cannot unmount " + directory + ": " + why +
                           "; end the programs that have files open there or use it as their "
                           "current directory, or add --lazy");
}

}  // namespace rdmaemu::cli
