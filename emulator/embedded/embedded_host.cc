#include "emulator/embedded/embedded_host.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "emulator/embedded/call_routing.h"
#include "emulator/host/ended_programs.h"
#include "emulator/runtime/host_setup.h"

namespace rdmaemu::embedded {
namespace {

// The configuration contains none of the machine's own addresses, so it is the same on every
// machine.
runtime::OrMessage<HostConfig> MakeConfig(const EmbeddedOptions& options) {
  runtime::HostOptions host = options.host;
  host.addresses.clear();
  for (const std::vector<std::string>& each : options.device_addresses) {
    host.addresses.insert(host.addresses.end(), each.begin(), each.end());
  }
  runtime::OrMessage<HostConfig> config = runtime::MakeHostConfig(host, {});
  if (!config) return config;
  config->ends_programs = false;
  for (const fault::Rule& rule : config->faults) {
    if (!rule.match.host.empty() && rule.match.host != host.name) continue;
    if (const auto wrong = WhyNotEmbedded(rule)) return tl::unexpected(*wrong);
  }
  // MakeHostConfig assigns addresses to devices in turn. Here each device gets its own addresses.
  for (size_t i = 0; i < options.device_addresses.size(); i++) {
    config->devices[i].addresses.clear();
    for (const std::string& text : options.device_addresses[i]) {
      config->devices[i].addresses.push_back(*runtime::ParseAddressOption(text));
    }
  }
  return config;
}

runtime::OrMessage<void> OpenAddresses(const HostConfig& config, EmbeddedNetwork::Port& port) {
  for (const DeviceConfig& device : config.devices) {
    for (const HostAddress& own : device.addresses) {
      if (port.Open(own)) continue;
      return tl::unexpected("the address " + own.address.ToString() +
                            " is another host's of this process; give each device addresses of "
                            "its own, as in .addresses = \"10.0.0.2\"");
    }
  }
  return {};
}

}  // namespace

runtime::OrMessage<std::unique_ptr<EmbeddedHost>> EmbeddedHost::Make(const EmbeddedOptions& options,
                                                                     uint32_t number, Time now,
                                                                     EmbeddedNetwork& network,
                                                                     RecentLines& lines) {
  runtime::OrMessage<HostConfig> config = MakeConfig(options);
  if (!config) return tl::unexpected(config.error());
  if (const auto lids = runtime::CheckLids(*config); !lids) return tl::unexpected(lids.error());
  config->ids = IdSpace::Part(number);
  std::unique_ptr<EmbeddedHost> made(new EmbeddedHost(options.host.name, number, network, lines));
  if (const auto opened = OpenAddresses(*config, *made->port_); !opened) {
    return tl::unexpected(opened.error());
  }
  if (const auto opened = made->trace_.Open(options.host, now); !opened) {
    return tl::unexpected(opened.error());
  }
  made->seed_ = options.host.seed;
  if (options.report_bytes > 0) {
    made->trace_.KeepReport(options.host.name, now, options.report_bytes);
  }
  made->host_ = std::make_unique<Host>(
      std::move(*config), Host::Environment{made->memory_, made->segments_, made->counters_,
                                            *made->port_, made->trace_});
  made->process_ = made->host_->Attach(now, {static_cast<uint32_t>(getpid()), "embedded"});
  made->memory_.AddProcess(made->process_, getpid());
  return made;
}

EmbeddedHost::EmbeddedHost(const std::string& name, uint32_t number, EmbeddedNetwork& network,
                           RecentLines& lines)
    : name_(name),
      number_(number),
      trace_(name, lines),
      segments_(IdSpace::Part(number)),
      memory_([](const std::string&) {}),
      port_(std::make_unique<EmbeddedNetwork::Port>(network, number)) {
  // Without CopyAlone, the thread that polls would make the copy anyway.
  memory_.CopyAlone();
}

std::optional<int> EmbeddedHost::Call(Time now, CallBuffers& call) {
  if (host_ == nullptr) return AnswerWithoutHost(call);
  const CallHeader header{call.op, call.in_size};
  std::vector<std::byte> message(sizeof header + call.in_size);
  std::memcpy(message.data(), &header, sizeof header);
  if (call.in_size > 0) std::memcpy(message.data() + sizeof header, call.in, call.in_size);
  const bool ends_rules = call.op == static_cast<uint32_t>(CallOp::kFaultRemove) ||
                          call.op == static_cast<uint32_t>(CallOp::kFaultClear);
  if (HostReport* const report = trace_.report(); report != nullptr && ends_rules) {
    const std::string_view name(static_cast<const char*>(call.in), call.in_size);
    const bool ends_all = call.op == static_cast<uint32_t>(CallOp::kFaultClear);
    report->AddEndedRules(RulesText(now), ends_all ? std::nullopt : std::optional(name));
  }
  const Reply reply = host_->Call(now, process_, message);
  if (reply.is_late) {
    owes_reply_ = true;
    return std::nullopt;
  }
  return Answer(reply, call);
}

int EmbeddedHost::AnswerWithoutHost(CallBuffers& call) {
  if (!IsDestroyCall(call.op)) return EIO;
  if (call.out_size > 0) std::memset(call.out, 0, call.out_size);
  call.filled = call.out_size;
  return 0;
}

std::optional<int> EmbeddedHost::TakeLateReply(CallBuffers& call) {
  if (host_ == nullptr) return EIO;
  const std::optional<LateReply> late = host_->TakeLateReply();
  if (!late) return std::nullopt;
  owes_reply_ = false;
  return Answer(late->reply, call);
}

void EmbeddedHost::AbandonCall() {
  if (host_ != nullptr) host_->AbandonCalls(process_);
  owes_reply_ = false;
}

int EmbeddedHost::Answer(const Reply& reply, CallBuffers& call) {
  int error = reply.error;
  if (error == 0) error = GiveDescriptors(reply, call);
  if (error != 0) return error;
  call.filled = static_cast<uint32_t>(std::min<size_t>(reply.body.size(), call.out_size));
  if (call.filled > 0) std::memcpy(call.out, reply.body.data(), call.filled);
  return 0;
}

int EmbeddedHost::Duplicate(const ReplyDescriptor& what) const {
  int fd = -1;
  if (const auto* counter = std::get_if<CounterId>(&what)) fd = counters_.Descriptor(*counter);
  if (const auto* segment = std::get_if<SegmentId>(&what)) fd = segments_.Descriptor(*segment);
  return fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

int EmbeddedHost::GiveDescriptors(const Reply& reply, CallBuffers& call) const {
  // The doorbell descriptor has no reader here, because the client calls Ring instead.
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

bool EmbeddedHost::Step(Time now) {
  // Call PrepareSleep before PollDoorbells. Each later post then rings the doorbell, so that a
  // program's post runs the host.
  host_->PrepareSleep(true);
  bool found = host_->PollDoorbells(now);
  found |= host_->Work(now);
  if (const std::optional<Time> deadline = host_->NextDeadline(); deadline && *deadline <= now) {
    host_->Expire(now);
    found = true;
  }
  return found;
}

std::optional<Time> EmbeddedHost::NextDeadline() {
  if (host_ == nullptr) return std::nullopt;
  host_->DropStaleDeadlines();
  return host_->NextDeadline();
}

bool EmbeddedHost::AwaitsApplication(Time now) const {
  return host_ != nullptr && host_->AwaitsApplication(now);
}

void EmbeddedHost::Close(Time now) {
  if (host_ != nullptr) host_->Detach(now, process_);
  trace_.Flush();
}

EmbeddedHost::FiredCounts EmbeddedHost::Fired() const {
  if (host_ == nullptr) return fired_until_end_;
  FiredCounts fired;
  for (const auto& rule : nlohmann::json::parse(host_->RulesJson())) {
    fired.emplace(rule.at("name").get<std::string>(), rule.at("fired").get<uint64_t>());
  }
  return fired;
}

void EmbeddedHost::ForgetFired(std::optional<std::string_view> rule) {
  std::erase_if(fired_until_end_, [&](const auto& each) { return !rule || each.first == *rule; });
}

std::string EmbeddedHost::RulesText(Time now) {
  if (host_ == nullptr) return {};
  const CallHeader header{static_cast<uint32_t>(CallOp::kFaultList), 0};
  const Reply reply = host_->Call(now, process_, std::as_bytes(std::span(&header, 1)));
  return {reinterpret_cast<const char*>(reply.body.data()), reply.body.size()};
}

std::optional<EmbeddedHost::ReportPart> EmbeddedHost::Report(Time now) {
  const HostReport* const report = trace_.report();
  if (report == nullptr) return std::nullopt;
  return ReportPart{
      name_, seed_, has_ended(), report->Trace(), report->Capture(), report->Rules(RulesText(now))};
}

void EmbeddedHost::End() {
  if (HostReport* const report = trace_.report()) {
    report->AddEndedRules(host_->RulesJson(), std::nullopt);
  }
  fired_until_end_ = Fired();
  std::erase_if(fired_until_end_, [](const auto& each) { return each.second == 0; });
  counters_.RaiseForGood();
  host_.reset();
  port_.reset();
  owes_reply_ = false;
  trace_.Flush();
}

}  // namespace rdmaemu::embedded
