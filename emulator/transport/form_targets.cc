#include "emulator/transport/form_targets.h"

#include <cerrno>
#include <optional>

#include "emulator/transport/copy_waits.h"

namespace rdmaemu::transport {

WriteCursor FormTargets::CursorOf(const QpContext& context) {
  const ResponderState& s = context.responder;
  const WriteCursor& ahead = context.ahead;
  if (ahead.epoch == context.epoch && PsnDiff(ahead.psn, s.expected_psn) > 0) return ahead;
  return {.epoch = context.epoch,
          .psn = s.expected_psn,
          .in_message = s.message != Message::kNone,
          .is_known = s.message != Message::kSend,
          .address = s.write_address,
          .rkey = s.write_rkey,
          .left = s.write_left};
}

Naming FormTargets::Name(QpContext& context, const Train& train,
                         const std::shared_ptr<DirectForm>& form) {
  const QueuePair& qp = *context.qp;
  const wire::OpcodeInfo& info = train.info();
  const ProcessId program = qp.share().sole_process;
  const uint32_t pid = memory_.PidFor(program, program);
  if (!info.write || info.imm || (qp.attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) == 0 ||
      program == ProcessId::kNone || pid == 0) {
    return Naming::kNever;
  }
  WriteCursor next = CursorOf(context);
  // A READ before the WRITE brings what the memory has now.
  if (!context.responder.responses.empty()) return Naming::kLater;
  if (form == nullptr || train.headers.psn != next.psn || !next.is_known ||
      train.begins == next.in_message || train.mtu_bytes != context.mtu_bytes) {
    return Naming::kLater;
  }
  if (train.begins) {
    next.address = train.headers.remote_address;
    next.rkey = train.headers.rkey;
    next.left = train.headers.dma_length;
    if (next.left > qp.device->profile.most_request_bytes()) return Naming::kNever;
  }
  const uint64_t bytes = train.length();
  if (bytes == 0 || bytes > next.left || train.ends != (bytes == next.left)) return Naming::kNever;
  const auto whole =
      verbs_.ResolveRemote(qp, next.rkey, next.address, next.left, IBV_ACCESS_REMOTE_WRITE);
  if (!whole) return Naming::kNever;
  const MemoryRef to{whole->process, {whole->range.address, bytes}};
  if (program != to.process || memory_.IsShared(to.process, {&to.range, 1})) return Naming::kNever;
  std::erase_if(targets_, [](const Target& target) { return target.form->IsOver(); });
  if (targets_.size() >= kMaxTargets) return Naming::kLater;
  payloads_.PlaceWaiting(context, to.range);
  if (!form->Offer(pid, to.range)) return Naming::kLater;
  targets_.push_back({qp.qpn, train.headers.psn, to, form});
  next.psn = PsnAdd(train.last_psn(), 1);
  next.in_message = !train.ends;
  next.address += bytes;
  next.left -= static_cast<uint32_t>(bytes);
  context.ahead = next;
  return Naming::kNamed;
}

void FormTargets::Withdraw() {
  std::erase_if(targets_, [](const Target& target) { return target.form->IsOver(); });
  struct Begun {
    DirectForm& form;
    bool HasEnded() { return form.Withdraw(); }
    std::optional<uint32_t> Recall() { return form.Recall(); }
    bool TakeBack() { return form.TakeBack(); }
  };
  // The last one first: a thread takes them in their order.
  int looks = kMostLooks;
  for (size_t i = targets_.size(); i > 0; i--) {
    if (!targets_[i - 1].form->Withdraw()) AwaitCopy(memory_, Begun{*targets_[i - 1].form}, looks);
  }
  // A thread that does not end its copy is awaited once.
  if (looks == 0) targets_.clear();
}

Status FormTargets::Read(uint32_t qpn, uint32_t psn, std::span<std::byte> payload) {
  for (const Target& target : targets_) {
    if (target.qpn == qpn && target.psn == psn && target.to.range.length == payload.size()) {
      return memory_.Read(target.to.process, {&target.to.range, 1}, payload);
    }
  }
  return Fail(ESRCH);
}

}  // namespace rdmaemu::transport
