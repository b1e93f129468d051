// The directory where hosts can be found: NAME.sock, on which a host listens, NAME.lock, which it
// holds (flock) from before it binds anything until it has closed its sockets, NAME.log, what a
// daemon printed, NAME.log.1, the log of the host before, NETWORK-ADDRESS.queue, by which hosts
// find each other's receive queues (queue_credit.h), NAME.wake, by which hosts that share their
// time wake each other, and NAME.crash, what the rules of a host had done when one of them ended
// it. The lock file's text says which process it is and which options it was started with.
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

// Results of this folder's set-up functions: the error is one line for a person, saying what
// happened, why, and what to do, without "error: ".
template <class T>
using OrMessage = tl::expected<T, std::string>;

// What a host was started with, as given (paths absolute); empty: the default.
struct HostOptions {
  std::string name = "default";
  std::vector<std::string> addresses = {};    // ADDRESS[/BITS]
  std::vector<std::string> devices = {};      // NAME or NAME=PROFILE
  std::vector<std::string> silent_nets = {};  // ADDRESS/BITS
  std::vector<std::string> gateways = {};
  std::string pcap_path = {};
  std::string trace_path = {};
  std::string scenario_path = {};      // of fault rules
  std::string clock = {};              // real, scaled:K, virtual, manual; empty: real
  std::string seed = {};               // a decimal number; empty: the kernel's randomness
  std::string payload_shortcuts = {};  // on, off; empty: on
};

// What a lock file says.
struct HostRecord {
  pid_t pid = 0;
  HostOptions options;
  std::string seed = {};  // the one that it runs with, given or not
  // ScenarioMark of the file as it was read, and how many of its rules were for this host.
  std::string scenario_mark = {};
  uint64_t scenario_rules = 0;
  bool lives_alone = false;  // until it is stopped, with clients or without
};

// The text of a lock file; nothing when it is not one.
std::optional<HostRecord> ParseRecord(std::string_view name, std::string_view text);

class Registry {
 public:
  static constexpr size_t kMaxNameBytes = 48;  // NAME.sock must fit into sun_path

  // $RDMAEMU_DIR, else $XDG_RUNTIME_DIR/rdmaemu, else /tmp/rdmaemu-<uid>. Makes it with mode 0700;
  // refuses one that is not ours or that others can write to.
  static OrMessage<Registry> Open();

  const std::string& directory() const { return directory_; }
  std::string SocketPath(std::string_view name) const { return Path(name, ".sock"); }
  std::string LockPath(std::string_view name) const { return Path(name, ".lock"); }
  std::string WakePath(std::string_view name) const { return Path(name, ".wake"); }
  std::string ReplayPath(std::string_view name) const { return Path(name, ".replay"); }
  std::string CrashPath(std::string_view name) const { return Path(name, ".crash"); }
  std::string LogPath(std::string_view name) const { return Path(name, ".log"); }
  std::string PreviousLogPath(std::string_view name) const { return Path(name, ".log.1"); }

  // Names that have a socket, sorted. Whether anybody listens there is another question.
  std::vector<std::string> Names() const;
  // Names that have a lock file, sorted: hosts that start or end as well.
  std::vector<std::string> LockedNames() const;
  // Takes the host's lock if nobody holds it; EWOULDBLOCK otherwise.
  Result<UniqueFd> TryLock(std::string_view name) const;
  // The JSON text (Host::RulesJson) that the host of this process id left when a rule ended it.
  void WriteCrash(std::string_view name, std::string_view rules) const;
  std::optional<std::string> ReadCrash(std::string_view name, pid_t pid) const;
  // Renames the log of the name's host before, so that a new one begins. Call with the lock.
  void KeepPreviousLog(std::string_view name) const;
  // Who holds or held the lock.
  std::optional<HostRecord> ReadRecord(std::string_view name) const;
  static bool WriteRecord(int lock_fd, const HostRecord& record);

 private:
  explicit Registry(std::string directory) : directory_(std::move(directory)) {}
  std::string Path(std::string_view name, std::string_view suffix) const;
  std::vector<std::string> NamesWith(std::string_view extension) const;

  std::string directory_;
};

// Nothing when the name can be a file's, else what is wrong with it.
std::optional<std::string> CheckHostName(std::string_view name);

}  // namespace rdmaemu::runtime
