// Which objects outlive the end of a process. An object belongs to the process that made it and to
// the processes that were forked from that one afterwards, as a descriptor of the kernel belongs to
// all that inherited it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "emulator/base/ids.h"

namespace rdmaemu {

// The process that made an object, and how often that process had forked before.
struct Maker {
  ProcessId process = ProcessId::kNone;  // kNone: the object belongs to its whole group
  uint32_t forks = 0;
};

// The processes of one group at one moment.
class Survivors {
 public:
  // A process that runs stands behind everything that it made itself.
  void AddRunning(ProcessId process) { Add(process, kAlways, process); }
  // `process` runs or may run, and was forked from `ancestor` by its fork number `fork`, directly
  // or through others. kNone: it has no connection and thus no number yet.
  void AddForked(ProcessId ancestor, uint32_t fork, ProcessId process) {
    Add(ancestor, fork, process);
  }

  // Somebody is left to whom the object belongs.
  bool Hold(const Maker& maker) const {
    if (maker.process == ProcessId::kNone) return true;
    const auto found = before_.find(maker.process);
    return found != before_.end() && maker.forks < found->second;
  }
  // The process whose memory has what the maker's had when it made the object; nothing: there is
  // none that is connected and runs.
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

  // Of a maker: what it made before its fork of this number belongs to somebody.
  std::map<ProcessId, uint64_t> before_;
  std::map<ProcessId, StandInFor> stand_ins_;
};

}  // namespace rdmaemu
