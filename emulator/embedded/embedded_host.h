// One host that lives in the program's process: what a Host is given to do its work with, and what
// its answers are to the shim's client. EmbeddedHosts drives it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/embedded/embedded_network.h"
#include "emulator/embedded/recent_trace.h"
#include "emulator/host/host.h"
#include "emulator/runtime/clock.h"
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
  runtime::ClockOption clock;  // of all hosts: the first one's is taken
  bool program_time = false;   // as well
};

class EmbeddedHost {
 public:
  // The number-th host on this network, from 0: what it gives out by number is its part of all
  // numbers. The message says why not.
  static runtime::OrMessage<std::unique_ptr<EmbeddedHost>> Make(const EmbeddedOptions& options,
                                                                uint32_t number, Time now,
                                                                EmbeddedNetwork& network,
                                                                RecentLines& lines);
  EmbeddedHost(const EmbeddedHost&) = delete;
  EmbeddedHost& operator=(const EmbeddedHost&) = delete;

  const std::string& name() const { return name_; }
  uint32_t number() const { return number_; }

  // One call of calls.h: 0 or a positive errno. Nothing: a fault rule has the caller wait, and
  // TakeLateReply has the answer at its time. Until then no other call may be made.
  std::optional<int> Call(Time now, CallBuffers& call);
  std::optional<int> TakeLateReply(CallBuffers& call);
  // Nobody waits for the answer that is owed: what was not done yet is never done.
  void AbandonCall();
  bool owes_reply() const { return owes_reply_; }

  // Does what is ready; true when anything was.
  bool Step(Time now);
  void Receive(Time now, const wire::UdpFlow& flow, std::span<const std::byte> bytes,
               const NetAddress& at) {
    host_->Receive(now, flow, bytes, &at);
  }
  std::optional<Time> NextDeadline();
  bool AwaitsApplication(Time now) const;

  // How often each of its rules has fired; when it has ended: those that had until then.
  using FiredCounts = std::map<std::string, uint64_t, std::less<>>;
  FiredCounts Fired() const;
  // Of one that has ended: there is no such rule any more, or (nothing) none.
  void ForgetFired(std::optional<std::string_view> rule);

  // A rule crashed it; End is still to be called.
  bool has_crashed() const { return host_ != nullptr && host_->crashed(); }
  bool has_ended() const { return host_ == nullptr; }
  // Its process is detached, with the messages that it owes its peers.
  void Close(Time now);
  // Power off: nobody is told. Calls answer EIO, but for those that destroy something; who waits
  // for its counters returns.
  void End();

 private:
  EmbeddedHost(const std::string& name, uint32_t number, EmbeddedNetwork& network,
               RecentLines& lines);
  int Answer(const Reply& reply, CallBuffers& call);
  // After the end: what was made on it can be destroyed, with nothing to be waited for.
  static int AnswerWithoutHost(CallBuffers& call);
  // A descriptor of the program's own; -1 and errno.
  int Duplicate(const ReplyDescriptor& what) const;
  int GiveDescriptors(const Reply& reply, CallBuffers& call) const;

  const std::string name_;
  const uint32_t number_;
  RecentTrace trace_;
  runtime::MemfdSegments segments_;
  runtime::EventfdCounters counters_;
  // The program's own, reached through the kernel all the same: memory that is not there is an
  // error of the transfer, and not the end of the program.
  runtime::ProcessMemory memory_;
  std::unique_ptr<EmbeddedNetwork::Port> port_;
  std::unique_ptr<Host> host_;  // nullptr: it has ended
  ProcessId process_ = ProcessId::kNone;
  bool owes_reply_ = false;
  FiredCounts fired_until_end_;
};

}  // namespace rdmaemu::embedded
