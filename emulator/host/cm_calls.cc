#include "emulator/host/cm_calls.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "emulator/host/calls/struct_reply.h"

namespace rdmaemu {

Reply CmCalls::Call(Time now, GroupId group, const Maker& maker, CallOp op,
                    std::span<const std::byte> body) {
  if (op == CallOp::kCmCreateChannel) return CreateChannel(group, maker);
  if (op == CallOp::kCmDestroyChannel) return DestroyChannel(now, group, body);
  const auto command = static_cast<uint32_t>(op) - static_cast<uint32_t>(CallOp::kCmCommand);
  return Command(now, maker.process, group, command, body);
}

Reply CmCalls::CreateChannel(GroupId group, const Maker& maker) {
  const Result<cm::CmChannel> channel = cm_.CreateChannel(group, maker);
  if (!channel) return FailedReply(channel.error().code);
  Reply reply;
  Fill(reply, CmChannelOut{channel->handle, 0});
  reply.descriptors.push_back(channel->counter);
  return reply;
}

Reply CmCalls::DestroyChannel(Time now, GroupId group, std::span<const std::byte> body) {
  HandleIn in;
  if (As(body, in) == nullptr) return FailedReply(EINVAL);
  const Status done = cm_.DestroyChannel(now, group, in.handle);
  return done ? Reply{} : FailedReply(done.error().code);
}

Reply CmCalls::Command(Time now, ProcessId process, GroupId group, uint32_t command,
                       std::span<const std::byte> body) {
  struct {
    uint32_t channel, reserved;
  } target;
  if (body.size() < sizeof target) return FailedReply(EINVAL);
  std::memcpy(&target, body.data(), sizeof target);
  std::array<std::byte, kMaxCmResponseBytes> response;
  const Result<size_t> filled =
      cm_.Call(now, group, process, target.channel, command, body.subspan(sizeof target), response);
  if (!filled) return FailedReply(filled.error().code);
  Reply reply;
  reply.body.assign(std::span(response).first(std::min(*filled, response.size())));
  if (command == RDMA_USER_CM_CMD_GET_EVENT) ApplyEventRules(now, process, reply.body);
  return reply;
}

// An old program's response may be shorter than the struct. Rules change only its first members.
void CmCalls::ApplyEventRules(Time now, ProcessId process, std::span<std::byte> response) {
  rdma_ucm_event_resp event{};
  const size_t size = std::min(response.size(), sizeof event);
  std::memcpy(&event, response.data(), size);
  faults_.AtEvent(now, process, processes_.Find(process)->info.program, event);
  std::memcpy(response.data(), &event, size);
}

}  // namespace rdmaemu
