// A host that lives in the program's process and is driven by the threads that call it: each call
// runs the host until it rests, a wait lets time go on. Not thread-safe; ProcessHost is.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "emulator/embedded/clock.h"
#include "emulator/embedded/empty_network.h"
#include "emulator/embedded/recent_trace.h"
#include "emulator/host/host.h"
#include "emulator/runtime/eventfd_counters.h"
#include "emulator/runtime/memfd_segments.h"
#include "emulator/runtime/process_memory.h"
#include "emulator/runtime/registry.h"

namespace rdmaemu::embedded {

// A call's answer as the shim's client takes it.
struct CallBuffers {
  uint32_t op;
  const void* in;
  uint32_t in_size;
  void* out;
  uint32_t out_size;
  uint32_t filled;
  int* descriptors;  // owned by the caller, close-on-exec
  uint32_t descriptor_count;
};

struct EmbeddedOptions {
  runtime::HostOptions host;  // `addresses` is not looked at
  // Of host.devices, in their order; empty: as a host process chooses without the machine's own.
  std::vector<std::vector<std::string>> device_addresses;
  runtime::ClockOption clock;
};

class EmbeddedHost {
 public:
  // Rounds of work without time passing, and deadlines in a row: more is a loop, and is left.
  static constexpr int kMaxRounds = 1 << 20;
  static constexpr int kMaxJumps = 1 << 20;
  // A program of one thread that looks for completions so often, and does nothing else in between,
  // waits: then time passes over deadlines that wait for the program, too.
  static constexpr uint32_t kPollsThatAreAWait = 10'000;

  static runtime::OrMessage<std::unique_ptr<EmbeddedHost>> Open(const EmbeddedOptions& options);
  ~EmbeddedHost();

  // One call of calls.h, then the host runs until it rests. 0 or a positive errno.
  int Call(CallBuffers& call);
  // A doorbell was rung.
  void Ring();
  // Runs until nothing is ready at this moment. True when anything was.
  bool Settle();

  // The program waits and nothing has come: lets time go on to what may happen next. `alone`: it
  // has one thread, so that nothing else can happen while it waits.
  struct Pause {
    bool moved = false;    // look again
    bool endless = false;  // nothing will happen by itself
    std::optional<Duration> machine =
        std::nullopt;  // not moved: the machine's time until something happens
  };
  Pause GoOn(bool alone);
  // The program looked and found nothing: the same, but it may do something else next.
  void Look(bool alone);

  Time Now() { return clock_.Now(); }
  const EmbeddedClock& clock() const { return clock_; }
  // Of a clock that does not run: lets so much time pass, with all that happens in it.
  void Advance(Duration time);
  // Lets time jump until nothing is due or the program is awaited. False: too much happened.
  bool RunUntilIdle();

  std::string TraceText() const { return trace_.Text(); }
  Host& host() { return *host_; }

 private:
  EmbeddedHost(const std::string& name, runtime::ClockOption clock);
  // A descriptor of the program's own; -1 and errno.
  int Duplicate(const ReplyDescriptor& what) const;
  int GiveDescriptors(const Reply& reply, CallBuffers& call) const;
  void JumpTo(Time time);
  Reply AwaitLateReply();

  EmbeddedClock clock_;
  RecentTrace trace_;
  runtime::MemfdSegments segments_;
  runtime::EventfdCounters counters_;
  // The program's own, reached through the kernel all the same: memory that is not there is an
  // error of the transfer, and not the end of the program.
  runtime::ProcessMemory memory_;
  EmptyNetwork network_;
  std::unique_ptr<Host> host_;
  ProcessId process_ = ProcessId::kNone;
  uint32_t empty_looks_ = 0;  // in a row
};

}  // namespace rdmaemu::embedded
