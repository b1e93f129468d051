#include "shim/layer/faults/completion_doors.h"

#include "shim/layer/faults/call_door.h"
#include "shim/layer/faults/kept.h"
#include "shim/layer/faults/objects.h"
#include "shim/layer/module.h"

namespace rdmaemu::layer::faults {
namespace {

decltype(::ibv_modify_qp)* g_next_modify_qp;

void FailQp(ibv_qp* qp) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  g_next_modify_qp(qp, &attr, IBV_QP_STATE);
}

// The fate of a completion.
enum class Fate : uint8_t { kDelivered, kLost, kKept };

// Reduces a completion to that of a failed request, as on the emulator.
void ToError(ibv_wc& completion, ibv_wc_status status) {
  completion.status = status;
  completion.opcode = IBV_WC_SEND;
  completion.vendor_err = completion.byte_len = completion.wc_flags = 0;
}

// Applies the rules at `wc` to a completion, the program's `index`-th one of this poll. A delayed
// or held completion is kept. If it cannot be taken from the library's queue, this function waits
// for it instead.
Fate Pass(ibv_cq* cq, ibv_wc& completion, uint32_t index, bool can_keep) {
  MomentIn moment{};
  moment.door = static_cast<uint32_t>(Door::kCompletion);
  moment.number = completion.opcode;
  moment.status = completion.status;
  QpState* const qp = QpStates::Find(NumberKey(cq->context, completion.qp_num));
  if (qp != nullptr) {
    moment.qp = completion.qp_num;
    moment.qp_order = qp->order;
  }
  moment.has_bytes = completion.status == IBV_WC_SUCCESS;
  moment.bytes = completion.byte_len;
  SetDevice(moment, cq->context->device);
  Asked asked(moment);
  // The device completed this request before the rule's failure reached the queue pair.
  if (qp != nullptr && qp->has_failed && completion.status == IBV_WC_SUCCESS) {
    ToError(completion, IBV_WC_WR_FLUSH_ERR);
  }
  if (asked.does() == Does::kDrop) {
    asked.Mark(Injected::kCall);
    return Fate::kLost;
  }
  if (asked.does() == Does::kWaitBefore) {
    if (can_keep && Keep(cq, completion, &asked)) return Fate::kKept;
    asked.Mark(Injected::kLine, index);
    if (!can_keep) asked.Await();
  }
  if (asked.does() != Does::kChange) return Fate::kDelivered;
  asked.Mark(Injected::kLine, index);
  const auto status = static_cast<ibv_wc_status>(asked.answer().value);
  if (status == IBV_WC_SUCCESS) {
    completion.status = status;
    completion.vendor_err = 0;
    return Fate::kDelivered;
  }
  ToError(completion, status);
  const bool keeps_state = (asked.answer().flags & kKeepsState) != 0;
  if (!keeps_state && qp != nullptr && qp->qp != nullptr) {
    qp->has_failed = true;
    FailQp(qp->qp);
  }
  return Fate::kDelivered;
}

// Acts as Pass. Also keeps a completion that is behind a kept one.
Fate PassInOrder(ibv_cq* cq, ibv_wc& completion, uint32_t index) {
  const bool is_behind = IsBehindKept(cq, completion);
  const Fate fate = Pass(cq, completion, index, true);
  if (fate != Fate::kDelivered || !is_behind) return fate;
  return Keep(cq, completion, nullptr) ? Fate::kKept : fate;
}

// ---- extended CQs

struct ExtendedCq {
  decltype(ibv_cq_ex::start_poll) start_poll;
  decltype(ibv_cq_ex::next_poll) next_poll;
  decltype(ibv_cq_ex::end_poll) end_poll;
  decltype(ibv_cq_ex::read_opcode) read_opcode;
  decltype(ibv_cq_ex::read_qp_num) read_qp_num;      // nullptr: the program did not request it
  decltype(ibv_cq_ex::read_byte_len) read_byte_len;  // nullptr: as read_qp_num
};
using ExtendedCqs = Originals<ExtendedCq, ExtendedCq>;

bool KeepsCurrent(const ExtendedCq& original, ibv_cq_ex* cq) {
  ibv_wc completion{};
  completion.status = cq->status;
  completion.opcode = original.read_opcode(cq);
  if (original.read_qp_num != nullptr) completion.qp_num = original.read_qp_num(cq);
  if (original.read_byte_len != nullptr) completion.byte_len = original.read_byte_len(cq);
  const Fate fate = Pass(ibv_cq_ex_to_cq(cq), completion, 0, false);
  cq->status = completion.status;
  return fate == Fate::kDelivered;
}

// Skips lost completions. `error` is the result of the poll that read the current completion.
int SkipLost(const ExtendedCq& original, ibv_cq_ex* cq, int error) {
  if (!IsWatched(&DoorsPage::completions)) return error;
  while (error == 0 && !KeepsCurrent(original, cq)) error = original.next_poll(cq);
  return error;
}

int StartKept(ibv_cq_ex* cq, ibv_poll_cq_attr* attr) {
  const ExtendedCq& original = *ExtendedCqs::Find(cq);
  const int begun = original.start_poll(cq, attr);
  const int error = SkipLost(original, cq, begun);
  // A program calls ibv_end_poll only for a poll that has begun.
  if (begun == 0 && error != 0) original.end_poll(cq);
  return error;
}

int NextKept(ibv_cq_ex* cq) {
  const ExtendedCq& original = *ExtendedCqs::Find(cq);
  return SkipLost(original, cq, original.next_poll(cq));
}

int StartPoll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr) {
  const Caller caller(__builtin_return_address(0));
  if (!caller.IsProgram()) return ExtendedCqs::Find(cq)->start_poll(cq, attr);
  if (!IsWatched(kCall_ibv_context_ops_poll_cq)) return StartKept(cq, attr);
  return Decided<int, ibv_cq_ex*, ibv_poll_cq_attr*>(kCall_ibv_context_ops_poll_cq, Report::kErrno,
                                                     StartKept, cq, attr);
}

int NextPoll(ibv_cq_ex* cq) {
  const Caller caller(__builtin_return_address(0));
  return caller.IsProgram() ? NextKept(cq) : ExtendedCqs::Find(cq)->next_poll(cq);
}

// Returns how many completions the program gets, or a negative errno. `taken` gets the number that
// the library returned.
int PollOnce(ibv_cq* cq, int count, ibv_wc* out, PollCqFunction next, int& taken) {
  const PollTurn turn(cq);
  int passed = TakeKept(cq, count, out);
  const int begin = passed;
  taken = begin < count ? next(cq, count - begin, out + begin) : 0;
  if (taken < 0) return passed > 0 ? passed : taken;
  for (int i = begin; i < begin + taken; i++) {
    if (PassInOrder(cq, out[i], static_cast<uint32_t>(passed)) != Fate::kDelivered) continue;
    if (passed != i) out[passed] = out[i];
    passed++;
  }
  return passed;
}

}  // namespace

// Polls again while all completions that a poll took are lost or kept. A program that got 0 would
// wait for an event that the library has already sent.
int PollKept(ibv_cq* cq, int count, ibv_wc* out, PollCqFunction next) {
  if (!IsWatched(&DoorsPage::completions) && !HasKept(cq)) return next(cq, count, out);
  for (;;) {
    int taken = 0;
    const int passed = PollOnce(cq, count, out, next, taken);
    if (passed != 0) return passed;
    if (taken == 0 && !AwaitKept(cq)) return 0;
  }
}

namespace {

decltype(::ibv_get_cq_event)* g_next_get_cq_event;
decltype(::ibv_destroy_cq)* g_next_destroy_cq;

int ModifyQp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  const Caller caller(__builtin_return_address(0));
  const int error = g_next_modify_qp(qp, attr, mask);
  if (error != 0 || (mask & IBV_QP_STATE) == 0 || attr->qp_state != IBV_QPS_RESET) return error;
  QpState* const state = QpStates::Find(NumberKey(qp->context, qp->qp_num));
  if (state != nullptr) state->has_failed = false;
  return error;
}

int GetCqEvent(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  const Caller caller(__builtin_return_address(0));
  const int result = g_next_get_cq_event(channel, cq, cq_context);
  if (result == 0) SetArmed(*cq, false);
  return result;
}

int DestroyCq(ibv_cq* cq) {
  const Caller caller(__builtin_return_address(0));
  const int error = g_next_destroy_cq(cq);
  if (error == 0) ForgetKept(cq);
  return error;
}

}  // namespace

void InstallCompletionDoor(void** (*slot_of)(const char*)) {
  InterceptBy(slot_of, "ibv_modify_qp", ModifyQp, &g_next_modify_qp);
  InterceptBy(slot_of, "ibv_get_cq_event", GetCqEvent, &g_next_get_cq_event);
  InterceptBy(slot_of, "ibv_destroy_cq", DestroyCq, &g_next_destroy_cq);
}

void Created(ibv_cq_ex* cq) {
  ExtendedCq* const original = cq == nullptr ? nullptr : ExtendedCqs::FindOrMake(cq);
  if (original == nullptr || cq->start_poll == nullptr) return;
  original->end_poll = cq->end_poll;
  original->read_opcode = cq->read_opcode;
  original->read_qp_num = cq->read_qp_num;
  original->read_byte_len = cq->read_byte_len;
  Replace(cq->start_poll, original->start_poll, StartPoll);
  Replace(cq->next_poll, original->next_poll, NextPoll);
}

}  // namespace rdmaemu::layer::faults
