#include "emulator/transport/completer.h"

#include <cstring>

namespace rdmaemu::transport {
namespace {

constexpr uint8_t kSyndromeKindMask = 0xe0;
constexpr uint8_t kSyndromeValueMask = 0x1f;

// In microseconds (IBTA 9.7.5.2.8, table 45).
constexpr uint32_t kRnrDelayUs[32] = {655360, 10,    20,    30,     40,     60,     80,     120,
                                      160,    240,   320,   480,    640,    960,    1280,   1920,
                                      2560,   3840,  5120,  7680,   10240,  15360,  20480,  30720,
                                      40960,  61440, 81920, 122880, 163840, 245760, 327680, 491520};

bool IsEndless(const QueuePair& qp) {
  return qp.attr.retry_cnt == 7 && qp.device->profile.rc.retry_count_7_is_endless;
}

bool HoldsPsn(const SendWqe& request, uint32_t psn) {
  return request.started && PsnDiff(psn, request.first_psn) >= 0 &&
         PsnDiff(psn, request.last_psn) <= 0;
}

}  // namespace

std::optional<Time> AckDeadline(Time now, const QueuePair& qp) {
  if (qp.attr.timeout == 0) return std::nullopt;
  return now + AckTimeout(qp.attr.timeout & 31);
}

void SeekTo(QpContext& context, uint32_t psn) {
  RequesterState& s = context.requester;
  s.next_psn = psn;
  while (!s.reads.empty() && PsnDiff(s.reads.back(), psn) >= 0) s.reads.PopBack();
  bool found = false;
  s.cursor = s.requests.size();
  for (size_t i = 0; i < s.requests.size(); ++i) {
    SendWqe& request = s.requests[i];
    if (request.done) continue;
    if (found) {
      if (!request.started) break;
      request.sent = 0;
    } else if (!request.started || PsnDiff(request.last_psn, psn) >= 0) {
      found = true;
      s.cursor = i;
      request.sent = request.started && PsnDiff(psn, request.first_psn) > 0
                         ? static_cast<uint32_t>(PsnDiff(psn, request.first_psn))
                         : 0;
    }
  }
  // A request that failed locally stops the search, because no request behind it may be sent.
  for (size_t i = 0; i < s.cursor && i < s.requests.size(); ++i) {
    if (s.requests[i].done && s.requests[i].status != IBV_WC_SUCCESS) s.cursor = i;
  }
}

void Completer::Handle(Time now, QpContext& context, Train& train) {
  RequesterState& s = context.requester;
  // The response is for a PSN that was never sent. It belongs to an earlier incarnation of the QP,
  // or is forged.
  if (PsnDiff(train.last_psn(), s.highest_psn) >= 0) {
    core_.counters.dropped_unexpected_answer++;
    return;
  }
  switch (train.headers.operation) {
    case wire::Operation::kAcknowledge:
      return HandleAck(now, context, train.headers.psn, train.headers.syndrome);
    case wire::Operation::kAtomicAcknowledge:
      return HandleAtomic(now, context, train);
    case wire::Operation::kReadResponseOnly:
      return HandleRead(now, context, train);
    default:
      core_.counters.dropped_bad_opcode++;
  }
}

void Completer::HandleAck(Time now, QpContext& context, uint32_t psn, uint8_t syndrome) {
  if (PsnDiff(psn, context.requester.unacked_psn) < 0) {  // late
    core_.counters.dropped_old_answer++;
    return;
  }
  const auto kind = static_cast<wire::AckKind>(syndrome & kSyndromeKindMask);
  // A NAK acknowledges the packets before it.
  const uint32_t to = kind == wire::AckKind::kAck ? PsnAdd(psn, 1) : psn;
  if (!Acknowledge(now, context, to)) {
    core_.counters.dropped_answer_gap++;
    return Retry(now, context, false, "response lost");
  }
  if (!IsSending(*context.qp)) return;
  switch (kind) {
    case wire::AckKind::kAck:
      return CheckDrained(context);
    case wire::AckKind::kRnrNak:
      context.qp->device->counters.rcvd_rnr_err++;
      return HandleRnr(now, context, syndrome & kSyndromeValueMask);
    case wire::AckKind::kNak:
      if ((syndrome & kSyndromeValueMask) == static_cast<uint8_t>(wire::NakCode::kPsnSequence)) {
        context.qp->device->counters.rcvd_seq_err++;
        return Retry(now, context, false, "NAK: PSN sequence error");
      }
      return HandleFatalNak(now, context, psn, syndrome & kSyndromeValueMask);
    default:
      core_.counters.dropped_bad_syndrome++;
  }
}

void Completer::HandleRnr(Time now, QpContext& context, uint8_t timer) {
  RequesterState& s = context.requester;
  if (s.waiting_rnr || s.requests.empty() || PsnDiff(s.next_psn, s.unacked_psn) <= 0) {
    core_.counters.dropped_old_answer++;
    return;
  }
  if (s.rnr_retries_left == 0) {
    context.qp->device->counters.retry_rnr_exceeded_err++;
    return Fail(now, context, IBV_WC_RNR_RETRY_EXC_ERR);
  }
  if (context.qp->attr.rnr_retry != 7) s.rnr_retries_left--;
  core_.TraceRetry(now, context, "NAK: receiver not ready");
  s.waiting_rnr = true;
  core_.SetDeadline(context, now + std::chrono::microseconds(kRnrDelayUs[timer]));
}

void Completer::HandleFatalNak(Time now, QpContext& context, uint32_t psn, uint8_t code) {
  RequesterState& s = context.requester;
  if (s.requests.empty() || !HoldsPsn(s.requests.front(), psn)) {
    core_.counters.dropped_unexpected_answer++;
    return;
  }
  if (!context.qp->device->profile.tells_remote_errors) return EndUntold(now, context);
  switch (static_cast<wire::NakCode>(code)) {
    case wire::NakCode::kInvalidRequest:
      return Fail(now, context, IBV_WC_REM_INV_REQ_ERR);
    case wire::NakCode::kRemoteAccess:
      return Fail(now, context, IBV_WC_REM_ACCESS_ERR);
    default:
      return Fail(now, context, IBV_WC_REM_OP_ERR);
  }
}

// Ends a connection whose peer refused a request, on devices over TCP. There a request succeeds
// when it was sent. Only a request that still waits for its response has not succeeded. The end of
// the connection reports the peer's refusal.
void Completer::EndUntold(Time now, QpContext& context) {
  if (!context.requester.requests.front().needs_response()) Finish(now, context);
  core_.FailQp(now, *context.qp);
}

void Completer::AcknowledgeBefore(Time now, QpContext& context, uint32_t to) {
  const RequesterState& s = context.requester;
  if (s.is_finishing || !IsSending(*context.qp) || PsnDiff(to, s.unacked_psn) <= 0 ||
      PsnDiff(to, s.next_psn) > 0) {
    return;
  }
  // A response that is still missing arrives later.
  (void)Acknowledge(now, context, to);
  CheckDrained(context);
}

bool Completer::Acknowledge(Time now, QpContext& context, uint32_t to) {
  RequesterState& s = context.requester;
  const uint32_t before = s.unacked_psn;
  bool progress = false;
  bool complete = true;
  while (!s.requests.empty() && PsnDiff(to, s.unacked_psn) > 0) {
    SendWqe& request = s.requests.front();
    if (request.done) {
      if (request.status != IBV_WC_SUCCESS) break;
      Finish(now, context);
      continue;
    }
    if (!request.started) break;
    if (request.needs_response()) {
      complete = false;
      break;
    }
    progress = true;
    if (PsnDiff(to, request.last_psn) <= 0) {
      s.unacked_psn = to;
      break;
    }
    s.unacked_psn = PsnAdd(request.last_psn, 1);
    Finish(now, context);
  }
  if (progress) {
    Progress(now, context, static_cast<uint32_t>(PsnDiff(s.unacked_psn, before)));
  }
  CompleteDone(now, context);
  return complete;
}

void Completer::Progress(Time now, QpContext& context, uint32_t count) {
  RequesterState& s = context.requester;
  s.window.Acknowledged(count);
  s.retries_left = context.qp->attr.retry_cnt;
  s.rnr_retries_left = context.qp->attr.rnr_retry;
  s.retry_started = false;
  s.queue_waits = 0;
  s.probing = false;
  while (!s.reads.empty() && PsnDiff(s.reads.front(), s.unacked_psn) < 0) s.reads.PopFront();
  // After a go-back, a response to the first attempt may arrive. The packets that it acknowledges
  // need no retransmission.
  if (PsnDiff(s.unacked_psn, s.next_psn) > 0) SeekTo(context, s.unacked_psn);
  if (s.waiting_rnr) return;
  core_.SetDeadline(context, PsnDiff(s.next_psn, s.unacked_psn) > 0 ? AckDeadline(now, *context.qp)
                                                                    : std::nullopt);
  core_.MakeReady(context);
}

bool Completer::Target(QpContext& context, const Train& train, const ParkedTrain* before,
                       Pieces& into) {
  const uint32_t next =
      before != nullptr ? PsnAdd(before->train->last_psn(), 1) : context.requester.unacked_psn;
  if (train.headers.psn != next) return false;
  const SendWqe* const found = RequestOf(context, next);
  if (found == nullptr || (before == nullptr && found != &context.requester.requests[0])) {
    return false;
  }
  const SendWqe& request = *found;
  if (!request.is_read() || !HoldsPsn(request, train.last_psn())) return false;
  const uint64_t offset =
      uint64_t{static_cast<uint32_t>(PsnDiff(train.headers.psn, request.first_psn))} *
      context.mtu_bytes;
  if (offset + train.length() > request.length ||
      core_.ResolveSges(*context.qp, request.sges, offset, train.length(), IBV_ACCESS_LOCAL_WRITE,
                        into) != IBV_WC_SUCCESS) {
    return false;
  }
  core_.payloads.PlaceWaiting(context, into);
  return true;
}

void Completer::HandleRead(Time now, QpContext& context, Train& train) {
  RequesterState& s = context.requester;
  const int32_t behind = PsnDiff(s.unacked_psn, train.headers.psn);
  if (behind > 0) {
    if (static_cast<uint32_t>(behind) >= train.packets) {
      core_.counters.dropped_old_answer += train.packets;
      return;
    }
    train.DropFront(static_cast<uint32_t>(behind));
  }
  if (!Acknowledge(now, context, train.headers.psn)) {
    core_.counters.dropped_answer_gap += train.packets;
    return Retry(now, context, false, "READ response lost");
  }
  if (!IsSending(*context.qp) || s.requests.empty()) return;
  SendWqe& request = s.requests.front();
  if (!request.needs_read_response() || request.done || !HoldsPsn(request, train.headers.psn) ||
      !HoldsPsn(request, train.last_psn())) {
    core_.counters.dropped_unexpected_answer += train.packets;
    return;
  }
  const std::optional<ibv_wc_status> placed = PlaceRead(context, request, train);
  if (!placed) return;
  if (*placed != IBV_WC_SUCCESS) return Fail(now, context, *placed);
  FinishRead(now, context, request, train.packets);
}

bool Completer::HandleRun(Time now, QpContext& context, Train& train) {
  const RequesterState& s = context.requester;
  if (train.headers.operation != wire::Operation::kReadResponseOnly || s.requests.empty() ||
      train.headers.psn != s.unacked_psn || PsnDiff(train.last_psn(), s.highest_psn) >= 0) {
    return false;
  }
  const SendWqe& request = s.requests[0];
  if (!request.is_read() || request.done || !HoldsPsn(request, train.headers.psn) ||
      !HoldsPsn(request, train.last_psn()) ||
      PlaceRead(context, request, train) != IBV_WC_SUCCESS) {
    return false;
  }
  FinishRead(now, context, request, train.packets);
  return true;
}

std::optional<ibv_wc_status> Completer::PlaceRead(QpContext& context, const SendWqe& request,
                                                  Train& train) {
  if (!request.is_read()) return train.length() == 0 ? IBV_WC_SUCCESS : IBV_WC_BAD_RESP_ERR;
  const uint64_t offset =
      uint64_t{static_cast<uint32_t>(PsnDiff(train.headers.psn, request.first_psn))} *
      context.mtu_bytes;
  const uint64_t expected =
      std::min<uint64_t>(uint64_t{train.packets} * context.mtu_bytes, request.length - offset);
  if (train.length() != expected) return IBV_WC_BAD_RESP_ERR;
  Pieces into;
  if (core_.ResolveSges(*context.qp, request.sges, offset, expected, IBV_ACCESS_LOCAL_WRITE,
                        into) != IBV_WC_SUCCESS) {
    return IBV_WC_LOC_PROT_ERR;
  }
  switch (core_.payloads.Place(context, train, into)) {
    case Placement::kPlaced:
      return IBV_WC_SUCCESS;
    case Placement::kDestinationGone:
      return IBV_WC_LOC_PROT_ERR;
    case Placement::kProcessEnded:
      return std::nullopt;
    case Placement::kSourceGone:
      break;
  }
  return IBV_WC_REM_OP_ERR;
}

void Completer::FinishRead(Time now, QpContext& context, const SendWqe& request, uint32_t packets) {
  RequesterState& s = context.requester;
  s.unacked_psn = PsnAdd(s.unacked_psn, packets);
  if (PsnDiff(s.unacked_psn, request.last_psn) > 0) Finish(now, context);
  Progress(now, context, packets);
  CompleteDone(now, context);
  CheckDrained(context);
}

void Completer::HandleAtomic(Time now, QpContext& context, const Train& train) {
  RequesterState& s = context.requester;
  if (PsnDiff(train.headers.psn, s.unacked_psn) < 0) {
    core_.counters.dropped_old_answer++;
    return;
  }
  if (!Acknowledge(now, context, train.headers.psn)) {
    core_.counters.dropped_answer_gap++;
    return Retry(now, context, false, "response lost");
  }
  if (!IsSending(*context.qp) || s.requests.empty()) return;
  SendWqe& request = s.requests.front();
  if (!request.is_atomic() || request.done || !HoldsPsn(request, train.headers.psn)) {
    core_.counters.dropped_unexpected_answer++;
    return;
  }
  Pieces into;
  std::array<std::byte, sizeof(uint64_t)> original;
  std::memcpy(original.data(), &train.headers.original, sizeof original);
  if (core_.ResolveSges(*context.qp, request.sges, 0, sizeof original, IBV_ACCESS_LOCAL_WRITE,
                        into) != IBV_WC_SUCCESS) {
    return Fail(now, context, IBV_WC_LOC_PROT_ERR);
  }
  core_.payloads.PlaceWaiting(context, into);
  if (const Status written = into.Write(core_.env.memory, original); !written) {
    if (written.error().code == ESRCH) return;  // Placement::kProcessEnded
    return Fail(now, context, IBV_WC_LOC_PROT_ERR);
  }
  s.unacked_psn = PsnAdd(request.last_psn, 1);
  Finish(now, context);
  Progress(now, context, 1);
  CompleteDone(now, context);
  CheckDrained(context);
}

// Returns true when the QP's requests, or their responses, may still be in the local queue.
// Otherwise a host that is slower than the timeout would exhaust the retries without any loss. The
// queue delivers the requests before their responses. A retry does not wait any longer.
bool Completer::AwaitsLocalQueue(QpContext& context) {
  RequesterState& s = context.requester;
  if (!context.peer_is_local) return false;
  if (s.queue_waits > 0 && core_.LocalTaken() < s.queued_by_then) return true;
  if (s.queue_waits == 2 || !core_.HasLocal()) return false;
  s.queue_waits++;
  s.queued_by_then = core_.LocalQueued();
  return true;
}

void Completer::Expire(Time now, QpContext& context) {
  RequesterState& s = context.requester;
  if (!IsSending(*context.qp)) return;
  if (s.waiting_rnr) {
    s.waiting_rnr = false;
    s.probing = context.peer_is_local;
    core_.counters.retransmissions++;
    SeekTo(context, s.unacked_psn);
    core_.MakeReady(context);
  } else if (s.awaited_copies > 0 || !context.parked[1].trains.empty() ||
             core_.fills.Delays(context.qp->handle, context.epoch,
                                now - AckTimeout(context.qp->attr.timeout & 31))) {
    // Nothing is lost, because a program's thread is still copying.
    core_.SetDeadline(context, AckDeadline(now, *context.qp));
  } else if (AwaitsLocalQueue(context)) {
    core_.SetDeadline(context, AckDeadline(now, *context.qp));
  } else {
    Retry(now, context, true, "ACK timeout");
  }
}

void Completer::Retry(Time now, QpContext& context, bool timeout, const char* why) {
  RequesterState& s = context.requester;
  if (!IsSending(*context.qp) || s.waiting_rnr || (s.retry_started && !timeout) ||
      core_.fills.Holds(context.qp->handle, context.epoch)) {
    return;
  }
  if (s.requests.empty() || PsnDiff(s.highest_psn, s.unacked_psn) <= 0) return;
  if (s.retries_left == 0) {
    context.qp->device->counters.retry_exceeded_err++;
    return Fail(now, context, IBV_WC_RETRY_EXC_ERR);
  }
  if (!IsEndless(*context.qp)) s.retries_left--;
  core_.counters.retransmissions++;
  context.qp->device->counters.completer_retry_err++;
  core_.TraceRetry(now, context, why);
  s.retry_started = true;
  s.queue_waits = 0;
  s.window.Lost();
  SeekTo(context, s.unacked_psn);
  core_.SetDeadline(context, AckDeadline(now, *context.qp));
  core_.MakeReady(context);
}

void Completer::Finish(Time now, QpContext& context) {
  RequesterState& s = context.requester;
  QueuePair& qp = *context.qp;
  // Free the slot first. A program that polls the completion may post again at once.
  s.consumer = qp.send_ring.Next(s.consumer);
  qp.send_ring.SetConsumer(s.consumer);
  // When the send CQ overruns, CQ_ERR is raised and the QP does not change (measured on rxe).
  const SendWqe& request = s.requests.front();
  // Programs execute no request of a stream, whose next request is posted already.
  const bool is_last = s.requests.size() == 1 && s.next_index == qp.send_ring.Producer();
  if (is_last) core_.lanes.Prepare(now, context, request);
  s.is_finishing = true;
  (void)core_.CompleteSend(now, context, request);
  s.is_finishing = false;
  if (Lanes::IsReceiving(context)) {
    core_.env.verbs.completions().Publish();
    Lanes::ShowCompleted(context);
  }
  s.requests.PopFront();
  if (s.cursor > 0) s.cursor--;
  // The slot of the request keeps its content until the next request.
  if (!is_last) return;
  core_.permits.Grant(context, request);
  core_.lanes.Grant(now, context, request);
}

void Completer::Fail(Time now, QpContext& context, ibv_wc_status status) {
  RequesterState& s = context.requester;
  if (s.requests.empty()) return;
  s.requests.front().status = status;
  Finish(now, context);
  core_.FailQpAfter(now, *context.qp, status);
}

void Completer::CompleteDone(Time now, QpContext& context) {
  RequesterState& s = context.requester;
  while (!s.requests.empty() && s.requests.front().done) {
    if (s.requests.front().status != IBV_WC_SUCCESS) {
      return Fail(now, context, s.requests.front().status);
    }
    Finish(now, context);
    // Later requests may have waited for this request (LOCAL_INV).
    core_.MakeReady(context);
  }
}

const SendWqe* Completer::RequestOf(const QpContext& context, uint32_t psn) {
  const auto& requests = context.requester.requests;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (!requests[i].done && HoldsPsn(requests[i], psn)) return &requests[i];
  }
  return nullptr;
}

void Completer::FailRequest(Time now, QpContext& context, uint32_t psn, ibv_wc_status status) {
  RequesterState& s = context.requester;
  for (size_t i = 0; i < s.requests.size(); ++i) {
    SendWqe& request = s.requests[i];
    if (request.done || !HoldsPsn(request, psn)) continue;
    request.status = status;
    request.done = true;
    s.cursor = std::min(s.cursor, i);
    break;
  }
  CompleteDone(now, context);
}

void Completer::Flush(Time now, QpContext& context) {
  RequesterState& s = context.requester;
  QueuePair& qp = *context.qp;
  while (!s.requests.empty()) {
    s.requests.front().status = IBV_WC_WR_FLUSH_ERR;
    Finish(now, context);
  }
  // At most the ring's size, because the program may post during this loop.
  SendWqe request;
  for (uint32_t left = qp.send_ring.Distance(s.next_index, qp.send_ring.Producer()); left > 0;
       left--) {
    CopySendWqe(qp, s.next_index, qp.device->profile.most_message_bytes(), request);
    request.status = IBV_WC_WR_FLUSH_ERR;
    s.next_index = s.consumer = qp.send_ring.Next(s.next_index);
    qp.send_ring.SetConsumer(s.consumer);
    (void)core_.CompleteSend(now, context, request);
  }
  s.reads.Clear();
  s.cursor = 0;
  s.waiting_rnr = false;
}

void Completer::CheckDrained(QpContext& context) {
  RequesterState& s = context.requester;
  QueuePair& qp = *context.qp;
  if (qp.state() != IBV_QPS_SQD || s.drained) return;
  if (!s.requests.empty() && s.requests.front().started) return;
  s.drained = true;
  qp.attr.sq_draining = 0;
  core_.env.verbs.RaiseQp(qp, IBV_EVENT_SQ_DRAINED);
}

}  // namespace rdmaemu::transport
