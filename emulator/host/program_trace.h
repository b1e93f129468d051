// Records of the host's trace about its programs: their calls, and the end of each process.
#pragma once

#include "emulator/base/nothing_queued.h"
#include "emulator/base/time.h"
#include "emulator/host/calls/call_names.h"
#include "emulator/host/processes.h"
#include "emulator/trace/trace.h"

namespace rdmaemu {

class ProgramTrace {
 public:
  // Keeps references.
  ProgramTrace(trace::Sink& sink, const Processes& processes)
      : sink_(sink), processes_(processes) {}

  void Call(Time now, ProcessId process, uint32_t op, int error) {
    if (!sink_.wants_records() || error == kNothingQueued) return;
    trace::Record record{now, process, "call", {}, CallName(op), {}};
    record.fields.push_back({"errno", int64_t{error}});
    sink_.Write(record);
  }
  // Tools never send a Hello and get no record.
  void End(Time now, ProcessId process) {
    const ConnectedProcess* const ended = processes_.Find(process);
    if (!sink_.wants_records() || ended == nullptr || !ended->runs) return;
    if (ended->group != GroupId::kNone) sink_.Write({now, process, "process", {}, "END", {}});
  }

 private:
  trace::Sink& sink_;
  const Processes& processes_;
};

}  // namespace rdmaemu
