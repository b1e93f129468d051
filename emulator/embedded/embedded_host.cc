#include "emulator/embedded/embedded_host.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "emulator/runtime/host_setup.h"

namespace rdmaemu::embedded {

namespace {

// Without the machine's own addresses: the same everywhere.
runtime::OrMessage<HostConfig> MakeConfig(const EmbeddedOptions& options) {
  runtime::HostOptions host = options.host;
  host.addresses.clear();
  for (const std::vector<std::string>& each : options.device_addresses) {
    host.addresses.insert(host.addresses.end(), each.begin(), each.end());
  }
  runtime::OrMessage<HostConfig> config = runtime::MakeHostConfig(host, {});
  if (!config) return config;
  // A host process deals its addresses out in turn; here each device was given its own.
  for (size_t i = 0; i < options.device_addresses.size(); i++) {
    config->devices[i].addresses.clear();
    for (const std::string& text : options.device_addresses[i]) {
      config->devices[i].addresses.push_back(*runtime::ParseAddressOption(text));
    }
  }
  return config;
}

}  // namespace

runtime::OrMessage<std::unique_ptr<EmbeddedHost>> EmbeddedHost::Open(
    const EmbeddedOptions& options) {
  runtime::OrMessage<HostConfig> config = MakeConfig(options);
  if (!config) return tl::unexpected(config.error());
  std::unique_ptr<EmbeddedHost> made(new EmbeddedHost(options.host.name, options.clock));
  if (const auto opened = made->trace_.Open(options.host, made->Now()); !opened) {
    return tl::unexpected(opened.error());
  }
  made->host_ = std::make_unique<Host>(
      std::move(*config), Host::Environment{made->memory_, made->segments_, made->counters_,
                                            made->network_, made->trace_});
  made->process_ = made->host_->Attach(made->Now(), {static_cast<uint32_t>(getpid()), "embedded"});
  made->memory_.AddProcess(made->process_, getpid());
  return made;
}

EmbeddedHost::EmbeddedHost(const std::string& name, runtime::ClockOption clock)
    : clock_(clock), trace_(name), memory_([](const std::string&) {}) {
  // The thread that polls is the one that would copy anyway.
  memory_.CopyAlone();
}

EmbeddedHost::~EmbeddedHost() {
  if (host_ != nullptr) host_->Detach(Now(), process_);
  trace_.Flush();
}

int EmbeddedHost::Call(CallBuffers& call) {
  empty_looks_ = 0;
  const CallHeader header{call.op, call.in_size};
  std::vector<std::byte> message(sizeof header + call.in_size);
  std::memcpy(message.data(), &header, sizeof header);
  if (call.in_size > 0) std::memcpy(message.data() + sizeof header, call.in, call.in_size);
  Reply reply = host_->Call(Now(), process_, message);
  if (reply.is_late) reply = AwaitLateReply();
  int error = reply.error;
  if (error == 0) error = GiveDescriptors(reply, call);
  if (error == 0) {
    call.filled = static_cast<uint32_t>(std::min<size_t>(reply.body.size(), call.out_size));
    if (call.filled > 0) std::memcpy(call.out, reply.body.data(), call.filled);
  }
  // Nobody looks at the doorbells but after a ring.
  if (call.op == static_cast<uint32_t>(CallOp::kHello)) host_->PrepareSleep(true);
  Settle();
  return error;
}

// The caller waits, so its time passes: also where the clock moves only when told.
Reply EmbeddedHost::AwaitLateReply() {
  for (;;) {
    if (std::optional<LateReply> late = host_->TakeLateReply()) return std::move(late->reply);
    const std::optional<Time> due = host_->NextDeadline();
    if (!due) return {.error = EIO, .body = {}, .descriptors = {}};
    if (clock_.runs()) {
      std::this_thread::sleep_for(clock_.MachineTimeUntil(*due));
      Settle();
    } else {
      JumpTo(*due);
    }
  }
}

int EmbeddedHost::Duplicate(const ReplyDescriptor& what) const {
  int fd = -1;
  if (const auto* counter = std::get_if<CounterId>(&what)) fd = counters_.Descriptor(*counter);
  if (const auto* segment = std::get_if<SegmentId>(&what)) fd = segments_.Descriptor(*segment);
  return fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

int EmbeddedHost::GiveDescriptors(const Reply& reply, CallBuffers& call) const {
  // The doorbell's has no reader here: Ring is called.
  std::vector<ReplyDescriptor> given = reply.descriptors;
  std::erase_if(given, [](const ReplyDescriptor& each) {
    return std::holds_alternative<DoorbellDescriptor>(each);
  });
  if (given.size() != call.descriptor_count) return EPROTO;
  for (size_t i = 0; i < given.size(); i++) {
    call.descriptors[i] = Duplicate(given[i]);
    if (call.descriptors[i] >= 0) continue;
    const int error = errno;
    while (i > 0) close(call.descriptors[--i]);
    return error;
  }
  return 0;
}

void EmbeddedHost::Ring() {
  empty_looks_ = 0;
  Settle();
}

bool EmbeddedHost::Settle() {
  bool any = false;
  for (int round = 0; round < kMaxRounds; round++) {
    const Time now = Now();
    bool found = host_->PollDoorbells(now);
    found |= host_->Work(now);
    if (const std::optional<Time> deadline = host_->NextDeadline(); deadline && *deadline <= now) {
      host_->Expire(now);
      found = true;
    }
    if (!found) break;
    any = true;
  }
  return any;
}

void EmbeddedHost::JumpTo(Time time) {
  clock_.MoveTo(time);
  Settle();
}

EmbeddedHost::Pause EmbeddedHost::GoOn(bool alone) {
  if (Settle()) return {.moved = true};
  const std::optional<Time> due = host_->NextDeadline();
  if (clock_.runs()) {
    if (!due) return {};
    return {.machine = clock_.MachineTimeUntil(*due)};
  }
  if (clock_.mode() == EmbeddedClock::Mode::kManual || !due) return {.endless = alone};
  const std::optional<Time> jump = alone ? due : host_->NextJump(Now());
  if (jump) {
    JumpTo(*jump);
    return {.moved = true};
  }
  clock_.PassUntil(*due);
  return {.moved = Settle(), .machine = clock_.MachineTimeUntil(*due)};
}

void EmbeddedHost::Look(bool alone) {
  const bool waits = alone && ++empty_looks_ >= kPollsThatAreAWait;
  if (waits) empty_looks_ = 0;
  GoOn(waits);
}

void EmbeddedHost::Advance(Duration time) {
  const Time target = Now() + time;
  Settle();
  for (int jumps = 0; jumps < kMaxJumps; jumps++) {
    const std::optional<Time> due = host_->NextDeadline();
    if (!due || *due > target) break;
    JumpTo(*due);
  }
  JumpTo(target);
}

bool EmbeddedHost::RunUntilIdle() {
  Settle();
  if (clock_.runs()) return true;
  for (int jumps = 0; jumps < kMaxJumps; jumps++) {
    const std::optional<Time> jump = host_->NextJump(Now());
    if (!jump) return true;
    JumpTo(*jump);
  }
  return false;
}

}  // namespace rdmaemu::embedded
