// The registry: a directory in which hosts of one user find each other. Its files are:
//   - NAME.sock: the socket on which a host listens.
//   - NAME.lock: the lock (flock) of a host. The host holds it from before its first bind(2) until
//     all its sockets are closed. The text of the file names the process and the options of the
//     host.
//   - NAME.log and NAME.log.1: the output of this daemon and of the daemon before it.
//   - NETWORK-ADDRESS.queue: by this file hosts find each other's receive queues (queue_credit.h).
//   - NAME.wake: by this socket hosts that share their time wake each other.
//   - NAME.crash: the state of a host's fault rules when one of these rules ended the host.
//   - NAME.doors: where a host on the system backend has fault rules
//   (shim/layer/faults/protocol.h).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/base/result.h"
#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::runtime {

// The result of a set-up function in this folder. The error is one line for the user: what
// happened, why, and what to do. The line does not begin with "error: ".
template <class T>
using OrMessage = tl::expected<T, std::string>;

// The options with which a host was started, as the user gave them (paths are absolute). Empty
// means the default.
struct HostOptions {
  std::string name = "default";
  std::vector<std::string> addresses = {};    // ADDRESS[/BITS]
  std::vector<std::string> devices = {};      // NAME or NAME=PROFILE
  std::vector<std::string> silent_nets = {};  // ADDRESS/BITS
  std::vector<std::string> gateways = {};
  std::string pcap_path = {};
  std::string trace_path = {};
  std::string scenario_path = {};      // TOML file of fault rules
  std::string clock = {};              // real, scaled:K, virtual, manual; empty: real
  std::string seed = {};               // as ParseSeed reads it; empty: the kernel's randomness
  std::string payload_shortcuts = {};  // on, off; empty: on
  std::string wire = {};               // shared, udp, udp-single; empty: shared
};

// The contents of a lock file.
struct HostRecord {
  pid_t pid = 0;
  HostOptions options;
  std::string seed = {};  // the seed in use, even if the options name none
  // ScenarioMark of the file when the host read it, and the number of its rules for this host.
  std::string scenario_mark = {};
  uint64_t scenario_rules = 0;
  bool lives_alone = false;  // runs until it is stopped, even without clients
};

// Parses the text of a lock file. Returns nullopt if the text is not that of a lock file.
std::optional<HostRecord> ParseRecord(std::string_view name, std::string_view text);

class Registry {
 public:
  static constexpr size_t kMaxNameBytes = 48;  // NAME.sock must fit into sun_path

  // Opens the registry: $RDMAEMU_DIR, else $XDG_RUNTIME_DIR/rdmaemu, else /tmp/rdmaemu-<uid>.
  // Creates the directory with mode 0700. Fails if another user owns the directory or can write to
  // it.
  static OrMessage<Registry> Open();

  const std::string& directory() const { return directory_; }
  std::string SocketPath(std::string_view name) const { return Path(name, ".sock"); }
  std::string LockPath(std::string_view name) const { return Path(name, ".lock"); }
  std::string WakePath(std::string_view name) const { return Path(name, ".wake"); }
  std::string ReplayPath(std::string_view name) const { return Path(name, ".replay"); }
  std::string DoorsPath(std::string_view name) const { return Path(name, ".doors"); }
  std::string CrashPath(std::string_view name) const { return Path(name, ".crash"); }
  std::string LogPath(std::string_view name) const { return Path(name, ".log"); }
  std::string PreviousLogPath(std::string_view name) const { return Path(name, ".log.1"); }

  // Returns the names that have a socket, sorted. A socket file does not prove that a host listens.
  std::vector<std::string> Names() const;
  // Returns the names that have a lock file, sorted. These include hosts that are starting or
  // ending.
  std::vector<std::string> LockedNames() const;
  // Takes the host's lock. Fails with EWOULDBLOCK if another process holds the lock, and with the
  // errno of open(2) or flock(2).
  Result<UniqueFd> TryLock(std::string_view name) const;
  // Returns whether a process holds the host's lock. Makes no call to the host, and therefore adds
  // no record to its trace.
  bool IsLocked(std::string_view name) const;
  // Writes the state of the host's rules (JSON text of Host::RulesJson) when a rule ends this
  // process's host.
  void WriteCrash(std::string_view name, std::string_view rules) const;
  // Returns that text if the process `pid` wrote it.
  std::optional<std::string> ReadCrash(std::string_view name, pid_t pid) const;
  // Renames NAME.log to NAME.log.1, so that a new log begins. The caller holds the lock.
  void KeepPreviousLog(std::string_view name) const;
  // Reads the record of the process that holds the lock or held it last.
  std::optional<HostRecord> ReadRecord(std::string_view name) const;
  static bool WriteRecord(int lock_fd, const HostRecord& record);

 private:
  explicit Registry(std::string directory) : directory_(std::move(directory)) {}
  std::string Path(std::string_view name, std::string_view suffix) const;
  std::vector<std::string> NamesWith(std::string_view extension) const;

  std::string directory_;
};

// Returns nullopt if the name is valid as a file name, else a message that says what is wrong.
std::optional<std::string> CheckHostName(std::string_view name);

}  // namespace rdmaemu::runtime
