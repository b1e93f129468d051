#include "emulator/host/joining.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "emulator/host/calls/struct_reply.h"

namespace rdmaemu {
namespace {

std::string BoundedText(const char* text, size_t bytes) {
  return std::string(text, strnlen(text, bytes));
}

}  // namespace

Result<SharedSpan> Joining::Share(GroupId group, ProcessId process) {
  const Result<SharedSpan> doorbells = verbs_.DoorbellSpan(group);
  if (!doorbells) return doorbells;
  const Result<Span> page = verbs_.AllocateProcessPage(group);
  if (!page) return Fail(page.error().code);
  pages_[process] = *page;
  processes_.Find(process)->page = reinterpret_cast<ProcessPage*>(page->bytes);
  verbs_.ProcessJoined(group, process);
  Processes::Group& members = processes_.groups().at(group);
  members.doorbells = &verbs_.Doorbells(group);
  turns_.Show(members);
  return doorbells;
}

Reply Joining::Hello(ProcessId process, std::span<const std::byte> body) {
  HelloIn in;
  if (body.size() < sizeof in.version) return FailedReply(EINVAL);
  std::memcpy(&in.version, body.data(), sizeof in.version);
  if (in.version != kCallVersion) return FailedReply(EPROTO);
  if (As(body, in) == nullptr) return FailedReply(EINVAL);
  Origin origin{{}, ProcessId{in.parent}, in.fork};
  std::copy(std::begin(in.group_token), std::end(in.group_token), origin.token.begin());
  const Result<GroupId> group = processes_.Join(process, origin, random_);
  if (!group) return FailedReply(group.error().code);
  const Result<SharedSpan> doorbells = Share(*group, process);
  if (!doorbells) return FailedReply(doorbells.error().code);

  ConnectedProcess& joined = *processes_.Find(process);
  if (const std::string program = BoundedText(in.program, sizeof in.program); !program.empty()) {
    joined.info.program = program;
  }
  Processes::Group& members = processes_.groups().at(*group);
  if (members.program.empty()) members.program = joined.info.program;
  HelloOut out{};
  out.version = kCallVersion;
  out.process = static_cast<uint32_t>(process);
  out.group = static_cast<uint32_t>(*group);
  out.host_pid = config_.pid;
  std::copy(members.token.begin(), members.token.end(), out.group_token);
  out.doorbells = *doorbells;
  out.process_page = pages_.at(process);
  config_.name.copy(out.host_name, sizeof out.host_name - 1);
  Reply reply;
  Fill(reply, out);
  reply.descriptors.push_back(DoorbellDescriptor{});
  return reply;
}

Reply Joining::MapSegment(GroupId group, std::span<const std::byte> body) {
  MapSegmentIn in;
  if (As(body, in) == nullptr) return FailedReply(EINVAL);
  const SegmentId segment{in.segment};
  const Result<uint64_t> length = verbs_.SegmentLength(group, segment);
  if (!length) return FailedReply(length.error().code);
  Reply reply;
  Fill(reply, MapSegmentOut{*length});
  reply.descriptors.push_back(segment);
  return reply;
}

void Joining::FreePage(GroupId group, ProcessId process) {
  const auto page = pages_.find(process);
  if (page == pages_.end()) return;
  verbs_.FreeProcessPage(group, page->second);
  pages_.erase(page);
}

}  // namespace rdmaemu
