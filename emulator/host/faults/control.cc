#include "emulator/host/faults/control.h"

#include <cerrno>
#include <cstring>
#include <string_view>

#include "emulator/host/calls/text_reply.h"

namespace rdmaemu {
namespace {

static_assert(fault::kMaxRuleBytes == kMaxFaultTextBytes);

std::string_view TextOf(std::span<const std::byte> body) {
  return {reinterpret_cast<const char*>(body.data()), body.size()};
}

Reply Refused(int error) {
  Reply reply;
  reply.error = error;
  return reply;
}

}  // namespace

Reply FaultControl::Call(Time now, ProcessId process, CallOp op, std::span<const std::byte> body) {
  if (op == CallOp::kFaultWait) return Wait(process, body);
  if (body.size() > kMaxFaultTextBytes) {
    return op == CallOp::kFaultAdd ? TextReply(faults_.AddText(TextOf(body))) : Refused(EMSGSIZE);
  }
  const std::string_view text = TextOf(body);
  switch (op) {
    case CallOp::kFaultAdd:
      return TextReply(faults_.AddText(text));
    case CallOp::kFaultRemove:
      Release(now, process, text);
      return TextReply(faults_.RemoveText(text));
    case CallOp::kFaultRelease:
      Release(now, process, text);
      return TextReply(faults_.ReleaseText(text));
    case CallOp::kFaultClear:
      Release(now, process, {});
      faults_.Clear();
      break;
    default:
      break;
  }
  fault::HeldCounts held;
  holder_.count_held(held);
  return TextReply(faults_.ListText(held));
}

void FaultControl::Release(Time now, ProcessId process, const fault::Release& release) {
  fault::HeldCounts held;
  holder_.count_held(held);
  for (const auto& [rule, count] : held) {
    if (count > 0 && (!release || *release == rule)) {
      faults_.TraceRelease(now, process, rule, count);
    }
  }
  holder_.release(now, release);
}

Reply FaultControl::Wait(ProcessId process, std::span<const std::byte> body) {
  FaultWaitIn in;
  if (body.size() < sizeof in || body.size() > sizeof in + kMaxFaultTextBytes) {
    return Refused(EINVAL);
  }
  std::memcpy(&in, body.data(), sizeof in);
  const auto text = faults_.WaitText(process, TextOf(body.subspan(sizeof in)), in.times);
  if (text) return TextReply(*text);
  Reply later;
  later.is_late = true;
  return later;
}

std::optional<LateReply> FaultControl::TakeLate() {
  const std::optional<HostFaults::LateText> text = faults_.TakeLateText();
  if (!text) return std::nullopt;
  return LateReply{text->process, TextReply(text->text)};
}

}  // namespace rdmaemu
