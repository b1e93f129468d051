// The responder's operations of one packet: atomics, ATOMIC WRITE and FLUSH.
#include <array>
#include <cstring>

#include "emulator/base/newer_verbs.h"
#include "emulator/transport/responder.h"

namespace rdmaemu::transport {

void Responder::HandleAtomic(Time now, QpContext& context, const Train& train) {
  ResponderState& s = context.responder;
  const QueuePair& qp = *context.qp;
  const wire::PacketHeaders& headers = train.headers;
  if (qp.attr.max_dest_rd_atomic == 0) {
    return Fatal(now, context, wire::NakCode::kInvalidRequest, headers.psn, IBV_WC_REM_INV_REQ_ERR);
  }
  const auto target = core_.env.verbs.ResolveRemote(qp, headers.rkey, headers.remote_address,
                                                    sizeof(uint64_t), IBV_ACCESS_REMOTE_ATOMIC);
  if (!target) {
    return Fatal(now, context, wire::NakCode::kRemoteAccess, headers.psn, IBV_WC_REM_ACCESS_ERR);
  }
  if (target->range.address % sizeof(uint64_t) != 0) {
    return Fatal(now, context, wire::NakCode::kInvalidRequest, headers.psn, IBV_WC_REM_INV_REQ_ERR);
  }
  uint64_t original = 0;
  const MemoryRange range = target->range;
  core_.payloads.PlaceWaiting(context, range);
  Status reached = core_.env.memory.Read(target->process, {&range, 1},
                                         std::as_writable_bytes(std::span(&original, 1)));
  uint64_t value = original;
  if (headers.operation == wire::Operation::kFetchAdd) {
    value += headers.swap_add;
  } else if (original == headers.compare) {
    value = headers.swap_add;
  }
  if (reached) {
    reached =
        core_.env.memory.Write(target->process, {&range, 1}, std::as_bytes(std::span(&value, 1)));
  }
  if (!reached) {
    if (reached.error().code == ESRCH) return;  // Placement::kProcessEnded
    return Fatal(now, context, wire::NakCode::kRemoteAccess, headers.psn, IBV_WC_REM_ACCESS_ERR);
  }
  Remember(context, train, 1).original = original;
  s.msn = PsnAdd(s.msn, 1);
  s.expected_psn = s.ack_psn = PsnAdd(headers.psn, 1);
  Answer(now, context,
         {.kind = Response::Kind::kAtomic,
          .syndrome = wire::kAethUnlimitedCredits,
          .psn = headers.psn,
          .msn = s.msn,
          .original = original});
}

int FlushAccess(const wire::PacketHeaders& headers) {
  return ((headers.placement & kFlushGlobal) != 0 ? kAccessFlushGlobal : 0) |
         ((headers.placement & kFlushPersistent) != 0 ? kAccessFlushPersistent : 0);
}

// Follows IBTA annex A19, and rxe's check_rkey and process_flush. When the engine handles a FLUSH,
// it has written all bytes of earlier requests except those that wait beside a completion.
void Responder::HandleFlush(Time now, QpContext& context, const Train& train) {
  const QueuePair& qp = *context.qp;
  const wire::PacketHeaders& headers = train.headers;
  if (qp.attr.max_dest_rd_atomic == 0 ||
      headers.dma_length > qp.device->profile.most_request_bytes()) {
    return Fatal(now, context, wire::NakCode::kInvalidRequest, headers.psn, IBV_WC_REM_INV_REQ_ERR);
  }
  const auto target =
      core_.env.verbs.ResolveFlush(qp, headers.rkey, headers.remote_address, headers.dma_length,
                                   headers.selectivity == kFlushRegion, FlushAccess(headers));
  if (!target) {
    return Fatal(now, context, wire::NakCode::kRemoteAccess, headers.psn, IBV_WC_REM_ACCESS_ERR);
  }
  if (target->range.length > 0) core_.payloads.PlaceWaiting(context, target->range);
  AnswerEmptyRead(now, context, train);
}

// Follows IBTA annex A19: oA19-28 and A19.4.2, in the order of rxe's check_rkey and
// rxe_mr_do_atomic_write.
void Responder::HandleAtomicWrite(Time now, QpContext& context, const Train& train) {
  const QueuePair& qp = *context.qp;
  const wire::PacketHeaders& headers = train.headers;
  const auto refuse = [&](wire::NakCode code) {
    Fatal(now, context, code, headers.psn,
          code == wire::NakCode::kRemoteAccess ? IBV_WC_REM_ACCESS_ERR : IBV_WC_REM_INV_REQ_ERR);
  };
  if (qp.attr.max_dest_rd_atomic == 0) return refuse(wire::NakCode::kInvalidRequest);
  const auto target = core_.env.verbs.ResolveRemote(qp, headers.rkey, headers.remote_address,
                                                    headers.dma_length, IBV_ACCESS_REMOTE_WRITE);
  if (!target) return refuse(wire::NakCode::kRemoteAccess);
  const MemoryRange range = target->range;
  std::array<std::byte, sizeof(uint64_t)> word;
  if (headers.dma_length != word.size() || train.length() != word.size() || !train.is_bytes ||
      range.address % word.size() != 0) {
    return refuse(wire::NakCode::kInvalidRequest);
  }
  // Copy once, because the bytes of a local sender are in memory that its program shares.
  std::memcpy(word.data(), train.bytes.data(), word.size());
  core_.payloads.PlaceWaiting(context, range);
  const Status written = core_.env.memory.Write(target->process, {&range, 1}, word);
  if (!written) {
    if (written.error().code == ESRCH) return;  // Placement::kProcessEnded
    return refuse(wire::NakCode::kRemoteAccess);
  }
  AnswerEmptyRead(now, context, train);
}

void Responder::AnswerEmptyRead(Time now, QpContext& context, const Train& train) {
  ResponderState& s = context.responder;
  Remember(context, train, 1);
  s.msn = PsnAdd(s.msn, 1);
  s.expected_psn = s.ack_psn = PsnAdd(train.headers.psn, 1);
  Answer(now, context,
         {.kind = Response::Kind::kEmptyRead,
          .syndrome = wire::kAethUnlimitedCredits,
          .psn = train.headers.psn,
          .msn = s.msn});
}

}  // namespace rdmaemu::transport
