#include "emulator/runtime/port_owner.h"

#include <dirent.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

#include "emulator/runtime/host_client.h"
#include "emulator/wire/packet.h"

namespace rdmaemu::runtime {
namespace {

struct BoundSocket {
  uint64_t inode;
  uint32_t uid;
};

// Formats an address as /proc/net/udp{,6} does: 32-bit words in the machine's byte order, in hex.
std::string ProcText(const NetAddress& address) {
  char text[33] = {};
  const int first = address.IsIpv4() ? 12 : 0;
  for (int i = first; i < 16; i += 4) {
    uint32_t word;
    std::memcpy(&word, &address.bytes[static_cast<size_t>(i)], sizeof word);
    snprintf(text + (i - first) * 2, 9, "%08X", word);
  }
  return text;
}

std::optional<BoundSocket> FindSocket(const char* path, const NetAddress& address) {
  char port[8];
  snprintf(port, sizeof port, ":%04X", wire::kRoceUdpPort);
  const std::string wanted = ProcText(address);
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);  // the header line
  while (std::getline(file, line)) {
    // sl local rem st tx:rx tr:tm retrnsmt uid timeout inode ...
    std::istringstream fields(line);
    std::string slot, local, skip;
    BoundSocket found;
    fields >> slot >> local >> skip >> skip >> skip >> skip >> skip >> found.uid >> skip >>
        found.inode;
    if (!fields || !local.ends_with(port)) continue;
    const std::string bound = local.substr(0, local.size() - std::strlen(port));
    if (bound == wanted || bound.find_first_not_of('0') == bound.npos) return found;
  }
  return std::nullopt;
}

using Directory = std::unique_ptr<DIR, int (*)(DIR*)>;

bool HoldsSocket(const std::string& fd_directory, const std::string& socket) {
  const Directory directory(opendir(fd_directory.c_str()), closedir);
  while (directory != nullptr) {
    const dirent* entry = readdir(directory.get());
    if (entry == nullptr) return false;
    char target[64] = {};
    const std::string link = fd_directory + "/" + entry->d_name;
    if (readlink(link.c_str(), target, sizeof target - 1) > 0 && socket == target) return true;
  }
  return false;
}

// Returns the process that holds the socket. Returns 0 if no process whose descriptors we may read
// holds it.
pid_t FindHolder(uint64_t inode) {
  const std::string socket = "socket:[" + std::to_string(inode) + "]";
  const Directory processes(opendir("/proc"), closedir);
  while (processes != nullptr) {
    const dirent* entry = readdir(processes.get());
    if (entry == nullptr) break;
    pid_t pid = 0;
    const char* const end = entry->d_name + std::strlen(entry->d_name);
    const auto [stop, error] = std::from_chars(entry->d_name, end, pid);
    if (error != std::errc() || stop != end) continue;
    if (HoldsSocket("/proc/" + std::string(entry->d_name) + "/fd", socket)) return pid;
  }
  return 0;
}

std::string ProgramOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(file, name);
  return name.empty() ? "unknown" : name;
}

// Returns true if the socket, which no process holds, is that of rdma_rxe.
bool IsKernelRxes(const BoundSocket& socket) {
  return socket.uid == 0 && access("/sys/module/rdma_rxe", F_OK) == 0;
}

}  // namespace

PortOwner FindPortOwner(const Registry& registry, const NetAddress& address) {
  std::optional<BoundSocket> found;
  if (address.IsIpv4()) found = FindSocket("/proc/net/udp", address);
  // An IPv6 socket on :: also holds the IPv4 port.
  if (!found) found = FindSocket("/proc/net/udp6", address);
  // The port may have been closed meanwhile.
  if (!found) return {"by a process that cannot be seen from here", kExitPatience};
  const pid_t pid = FindHolder(found->inode);
  if (pid == 0 && found->uid == geteuid()) {
    return {IsKernelRxes(*found)
                ? "by the kernel's own rdma_rxe (lsmod shows it)"
                : "by a process of this user that is ending or cannot be seen from here",
            kExitPatience};
  }
  if (pid == 0) {
    return {found->uid == 0
                ? "by a process of root or by the kernel's own rdma_rxe (lsmod shows it)"
                : "by a process of another user (uid " + std::to_string(found->uid) + ")"};
  }
  for (const std::string& name : registry.LockedNames()) {
    const std::optional<HostRecord> record = registry.ReadRecord(name);
    if (!record || record->pid != pid) continue;
    const std::string host = "by the rdmaemu host " + name + " (pid " + std::to_string(pid) + ")";
    if (HostClient::Connect(registry.SocketPath(name))) {
      return {host + "; stop it with: rdmaemu stop " + name};
    }
    return {host + ", which is starting or ending; end it with: kill -9 " + std::to_string(pid),
            kHostChangePatience};
  }
  return {"by process " + std::to_string(pid) + " (" + ProgramOf(pid) + ")"};
}

}  // namespace rdmaemu::runtime
