// One host in the program's process: the environment of a Host, and its replies to the shim's
// client. EmbeddedHosts runs it.
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

// The buffers for a call's reply, as the shim's client passes them.
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
  runtime::HostOptions host;  // `addresses` is ignored
  // The addresses of host.devices, in the same order. Empty: the default of a host process, without
  // the addresses of this machine.
  std::vector<std::vector<std::string>> device_addresses;
  runtime::ClockOption clock;  // the clock of all hosts; only the first host's value counts
  bool program_time = false;   // also only the first host's
  // Limit of the records, and of the packets, that each host keeps for a report. 0: the hosts keep
  // none. Also only the first host's.
  size_t report_bytes = 0;
};

class EmbeddedHost {
 public:
  // Makes the host with this number, counted from 0. The host's ids and handles are from its own
  // part of the number space. On failure the message gives the reason.
  static runtime::OrMessage<std::unique_ptr<EmbeddedHost>> Make(const EmbeddedOptions& options,
                                                                uint32_t number, Time now,
                                                                EmbeddedNetwork& network,
                                                                RecentLines& lines);
  EmbeddedHost(const EmbeddedHost&) = delete;
  EmbeddedHost& operator=(const EmbeddedHost&) = delete;

  const std::string& name() const { return name_; }
  uint32_t number() const { return number_; }

  // Makes one call of calls.h. Returns 0 or a positive errno. Returns nullopt if a fault rule
  // delays the reply. TakeLateReply then returns the reply. The caller must make no other call
  // until then.
  std::optional<int> Call(Time now, CallBuffers& call);
  std::optional<int> TakeLateReply(CallBuffers& call);
  // Cancels the delayed call. If the call has not been executed yet, it never will be.
  void AbandonCall();
  bool owes_reply() const { return owes_reply_; }

  // Does the work that is ready. Returns true if any work was ready.
  bool Step(Time now);
  void Receive(Time now, const wire::UdpFlow& flow, std::span<const std::byte> bytes,
               const NetAddress& at) {
    host_->Receive(now, flow, bytes, &at);
  }
  std::optional<Time> NextDeadline();
  bool AwaitsApplication(Time now) const;

  // Returns how often each rule has fired. For an ended host, returns only rules that had fired.
  using FiredCounts = std::map<std::string, uint64_t, std::less<>>;
  FiredCounts Fired() const;
  // Deletes the firing counts of an ended host: of one rule, or of all rules (nullopt).
  void ForgetFired(std::optional<std::string_view> rule);

  // The host's part of a report. nullopt if the host keeps none.
  struct ReportPart {
    std::string host, seed;
    bool has_ended;
    HostReport::File trace, capture;
    std::vector<std::string> rules;  // JSON objects
  };
  std::optional<ReportPart> Report(Time now);

  // Returns true if a rule crashed the host. The caller must then call End.
  bool has_crashed() const { return host_ != nullptr && host_->crashed(); }
  bool has_ended() const { return host_ == nullptr; }
  // Detaches the process. The host sends its last messages to its peers.
  void Close(Time now);
  // Ends the host as by power off, without a message to its peers. Later calls return EIO, except
  // those that destroy an object. Threads that wait on its counters return.
  void End();

 private:
  EmbeddedHost(const std::string& name, uint32_t number, EmbeddedNetwork& network,
               RecentLines& lines);
  int Answer(const Reply& reply, CallBuffers& call);
  // Returns the rules as JSON, with the number of held items. "" if the host has ended.
  std::string RulesText(Time now);
  // Answers a call after the end: objects of the host can be destroyed without waiting.
  static int AnswerWithoutHost(CallBuffers& call);
  // Returns a descriptor for the program, or -1 and errno.
  int Duplicate(const ReplyDescriptor& what) const;
  int GiveDescriptors(const Reply& reply, CallBuffers& call) const;

  const std::string name_;
  const uint32_t number_;
  std::string seed_;
  RecentTrace trace_;
  runtime::MemfdSegments segments_;
  runtime::EventfdCounters counters_;
  // The program's own memory, accessed through the kernel. An unmapped address therefore fails the
  // transfer and does not crash the program.
  runtime::ProcessMemory memory_;
  std::unique_ptr<EmbeddedNetwork::Port> port_;
  std::unique_ptr<Host> host_;  // nullptr: the host has ended
  ProcessId process_ = ProcessId::kNone;
  bool owes_reply_ = false;
  FiredCounts fired_until_end_;
};

}  // namespace rdmaemu::embedded
