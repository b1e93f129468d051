// Decides which objects remain when a process ends. An object belongs to the process that created
// it and to the processes forked from that process afterwards. File descriptors of the kernel have
// the same rule.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "emulator/base/ids.h"

namespace rdmaemu {

// The process that created an object, and how often that process had forked before.
struct Maker {
  ProcessId process = ProcessId::kNone;  // kNone: the object belongs to its whole group
  uint32_t forks = 0;
};

// The processes of one group at one moment.
class Survivors {
 public:
  // Adds a running process, which holds all objects that it created.
  void AddRunning(ProcessId process) { Add(process, kAlways, process); }
  // Adds a process that runs or may run. `process` was forked from `ancestor` by its fork number
  // `fork`, directly or through other processes. kNone: the process has no connection yet, and
  // therefore no id.
  void AddForked(ProcessId ancestor, uint32_t fork, ProcessId process) {
    Add(ancestor, fork, process);
  }

  // Returns true when the object still belongs to a process.
  bool Hold(const Maker& maker) const {
    if (maker.process == ProcessId::kNone) return true;
    const auto found = before_.find(maker.process);
    return found != before_.end() && maker.forks < found->second;
  }
  // Returns a connected, running process whose memory contains the maker's memory at the creation
  // of the object. Nothing: there is no such process.
  std::optional<ProcessId> StandIn(const Maker& maker) const {
    const auto found = stand_ins_.find(maker.process);
    if (found == stand_ins_.end() || maker.forks >= found->second.before) return std::nullopt;
    return found->second.process;
  }

 private:
  static constexpr uint64_t kAlways = UINT64_MAX;
  struct StandInFor {
    uint64_t before = 0;
    ProcessId process = ProcessId::kNone;
  };

  void Add(ProcessId maker, uint64_t before, ProcessId process) {
    uint64_t& held = before_[maker];
    if (before > held) held = before;
    if (process == ProcessId::kNone) return;
    StandInFor& best = stand_ins_[maker];
    if (before > best.before) best = {before, process};
  }

  // By maker: some process holds the objects that the maker created before its fork of this number.
  std::map<ProcessId, uint64_t> before_;
  std::map<ProcessId, StandInFor> stand_ins_;
};

}  // namespace rdmaemu
