#include "tools/cli/private_registry.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "emulator/base/net_address.h"
#include "tools/cli/running_host.h"

namespace rdmaemu::cli {
namespace {

bool WriteFile(const char* path, const std::string& text) {
  const runtime::UniqueFd fd(open(path, O_WRONLY | O_CLOEXEC));
  return fd && write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

bool StartLoopback() {
  const runtime::UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strncpy(request.ifr_name, "lo", sizeof request.ifr_name - 1);
  if (!fd || ioctl(fd.get(), SIOCGIFFLAGS, &request) != 0) return false;
  request.ifr_flags |= IFF_UP;
  return ioctl(fd.get(), SIOCSIFFLAGS, &request) == 0;
}

// Returns true if unshare(2) with these flags would succeed. A child process tries it, because a
// process cannot leave a namespace.
bool Allows(int flags, const std::string& user, const std::string& group) {
  const pid_t child = fork();
  if (child == 0) {
    _exit(unshare(flags) == 0 &&
                  ((flags & CLONE_NEWUSER) == 0 || (WriteFile("/proc/self/setgroups", "deny") &&
                                                    WriteFile("/proc/self/uid_map", user) &&
                                                    WriteFile("/proc/self/gid_map", group))) &&
                  StartLoopback()
              ? 0
              : 1);
  }
  int status = 1;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return child > 0 && status == 0;
}

// An ordinary user gets a network namespace only together with a user namespace, in which the user
// keeps the same id.
bool EnterNetworkNamespace() {
  const std::string user = std::to_string(geteuid()) + " " + std::to_string(geteuid()) + " 1";
  const std::string group = std::to_string(getegid()) + " " + std::to_string(getegid()) + " 1";
  for (const int flags : {CLONE_NEWNET, CLONE_NEWUSER | CLONE_NEWNET}) {
    if (!Allows(flags, user, group)) continue;
    if (unshare(flags) != 0) return false;
    if ((flags & CLONE_NEWUSER) != 0) {
      WriteFile("/proc/self/setgroups", "deny");
      WriteFile("/proc/self/uid_map", user);
      WriteFile("/proc/self/gid_map", group);
    }
    return StartLoopback();
  }
  return false;
}

}  // namespace

runtime::OrMessage<PrivateRegistry> PrivateRegistry::Make(const runtime::HostOptions& options) {
  const char* const run = std::getenv("XDG_RUNTIME_DIR");
  std::string directory;
  for (const std::string& parent : {std::string(run == nullptr ? "" : run), std::string("/tmp")}) {
    std::string made = parent + "/rdmaemu-private-XXXXXX";
    if (parent.empty() || mkdtemp(made.data()) == nullptr) continue;
    directory = made;
    break;
  }
  if (directory.empty()) {
    return tl::unexpected(std::string("cannot make a private directory in /tmp: ") +
                          std::strerror(errno) +
                          "; omit --private and set RDMAEMU_DIR to a directory of your own");
  }
  setenv("RDMAEMU_DIR", directory.c_str(), 1);
  const bool on_loopback = std::ranges::all_of(options.addresses, [](const std::string& text) {
    const auto address = NetAddress::Parse(text);
    return address && address->IsLoopback();
  });
  if (!on_loopback) {
    fprintf(stderr,
            "note: --private shares the machine's network, because a host has an address that is "
            "not a loopback address\n");
  } else if (!EnterNetworkNamespace()) {
    fprintf(stderr,
            "note: --private shares the machine's network, because the kernel refuses a network"
            " namespace; hosts of other runs may hold the same addresses\n");
  }
  return PrivateRegistry(directory);
}

PrivateRegistry::PrivateRegistry(PrivateRegistry&& other) noexcept
    : directory_(std::exchange(other.directory_, {})) {}

PrivateRegistry::~PrivateRegistry() {
  if (directory_.empty()) return;
  if (const auto registry = runtime::Registry::Open()) {
    for (const std::string& name : registry->LockedNames()) {
      auto client = runtime::HostClient::Connect(registry->SocketPath(name));
      if (client) (void)StopAndWait(*registry, name, *client);
    }
  }
  namespace fs = std::filesystem;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory_, error)) {
    const std::string name = entry.path().filename().string();
    const bool is_log = name.ends_with(".log") || name.ends_with(".log.1");
    if (!is_log || fs::file_size(entry.path(), error) == 0) fs::remove(entry.path(), error);
  }
  rmdir(directory_.c_str());  // fails if a log remains
}

}  // namespace rdmaemu::cli
