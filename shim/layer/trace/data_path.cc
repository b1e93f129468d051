#include "shim/layer/trace/data_path.h"

#include <errno.h>

#include <algorithm>
#include <new>

#include "shim/layer/trace/operations.h"
#include "shim/layer/trace/payloads.h"
#include "shim/layer/trace/table.h"
#include "shim/layer/trace/writer.h"

namespace rdmaemu::layer::trace {
namespace {

// The `wanted` of an empty ibv_start_poll, which has no count.
constexpr int64_t kStartPoll = -1;

// Counts one more empty poll in the thread's last record. Begins a new record when the last record
// is not an empty-polls record of this CQ and this `wanted`.
void PutEmptyPoll(const void* cq, int64_t wanted, uint64_t begin) {
  uint64_t end = 0;
  Thread* const thread = rdmaemu_layer_begin_record(&end);
  if (thread == nullptr) return;
  const auto key = reinterpret_cast<uint64_t>(cq);
  EmptyPollsRecord* const last = thread->polls;
  if (last != nullptr && last->cq == key && last->wanted == wanted) {
    last->count++;
    last->header.took += static_cast<float>(static_cast<int64_t>(end - last->header.time));
    last->header.time = end;
    __atomic_store_n(&thread->is_writing, false, __ATOMIC_RELEASE);
    return;
  }
  Record record(thread, RecordKind::kEmptyPolls, 0, end);
  record.SetBegin(begin);
  record.Put(uint64_t{1});
  record.Put(key);
  record.Put(wanted);
  record.MayCountPolls();
}

// Puts the head of a poll's record: answer, errno when the answer is negative, CQ, wanted entries.
void PutPoll(Record& record, uint64_t begin, int answer, const void* cq, int wanted) {
  record.SetBegin(begin);
  record.Put(static_cast<int32_t>(answer));
  if (answer < 0) record.Put(static_cast<int32_t>(errno));
  record.Put(reinterpret_cast<uint64_t>(cq));
  record.Put(static_cast<int32_t>(wanted));
}

// Puts as many completions as fit into one record, at most kMaxCompletionsPerRecord. Returns their
// number. The record must end after them.
// `hashes`: of the completions, or nullptr.
int PutCompletions(Record& record, ibv_wc* completions, int count,
                   const PayloadHash* hashes = nullptr) {
  const int taken = std::clamp(count, 0, kMaxCompletionsPerRecord);
  Writer<false> writer(record);
  for (int i = 0; i < taken; i++) {
    const bool has_hash = hashes != nullptr && hashes[i].state != HashState::kNothing;
    record.Put(static_cast<uint8_t>(has_hash ? 2 : 1));
    Describe(writer, completions[i]);
    if (has_hash) record.Put(hashes[i]);
  }
  return taken;
}

// The hashes of the completions in one record.
class Hashes {
 public:
  Hashes(const ibv_context* context, const ibv_wc* completions, int count) {
    if (!g_hashes_payloads) return;
    hashes_ = reinterpret_cast<PayloadHash*>(room_);
    const int error = errno;
    for (int i = 0; i < std::min(count, kMaxCompletionsPerRecord); i++) {
      new (&hashes_[i]) PayloadHash(HashOfCompletion(context, completions[i], true));
    }
    errno = error;
  }
  const PayloadHash* get() const { return hashes_; }

 private:
  PayloadHash* hashes_ = nullptr;
  char room_[kMaxCompletionsPerRecord * sizeof(PayloadHash)];  // costs nothing without hashes
};

// Returns the completion that start_poll or next_poll made current. Besides wr_id and status,
// fills in only fields whose read function the CQ has.
ibv_wc Current(ibv_cq_ex* cq, const ibv_cq_ex& original) {
  ibv_wc current{};
  current.wr_id = cq->wr_id;
  current.status = cq->status;
  if (original.read_qp_num != nullptr) current.qp_num = original.read_qp_num(cq);
  if (cq->status != IBV_WC_SUCCESS) {
    if (original.read_vendor_err != nullptr) current.vendor_err = original.read_vendor_err(cq);
    return current;
  }
  if (original.read_opcode != nullptr) current.opcode = original.read_opcode(cq);
  if (original.read_byte_len != nullptr) current.byte_len = original.read_byte_len(cq);
  return current;
}

void PutStep(CallId id, ibv_cq_ex* cq, const ibv_cq_ex& original, uint64_t begin, int answer) {
  const int error = errno;
  ibv_wc current = answer == 0 ? Current(cq, original) : ibv_wc{};
  PayloadHash hash;
  if (g_hashes_payloads && answer == 0) {
    const bool knows_qp = original.read_qp_num != nullptr && original.read_byte_len != nullptr;
    hash = HashOfCompletion(cq->context, current, knows_qp);
  }
  Record record(RecordKind::kCall, static_cast<uint16_t>(id));
  if (record) {
    PutPoll(record, begin, answer, cq, 0);
    PutCompletions(record, &current, answer == 0 ? 1 : 0, &hash);
  }
  errno = error;
}

}  // namespace

int PollCq(ibv_cq* cq, int count, ibv_wc* out) {
  const Caller caller(__builtin_return_address(0));
  const ibv_context_ops* const original = Originals<Thread, ibv_context_ops>::Find(cq->context);
  const uint64_t begin = Now();
  const int answer = original->poll_cq(cq, count, out);
  if (!caller.IsProgram()) return answer;
  if (answer == 0) {
    PutEmptyPoll(cq, count, begin);
    return 0;
  }
  int put = 0;
  {
    const Hashes hashes(cq->context, out, answer);
    Record record(RecordKind::kCall, static_cast<uint16_t>(CallId::k_ibv_context_ops_poll_cq));
    if (record) {
      PutPoll(record, begin, answer, cq, count);
      put = PutCompletions(record, out, answer, hashes.get());
    }
  }
  while (put < answer) {
    const Hashes hashes(cq->context, out + put, answer - put);
    Record record(RecordKind::kCompletions,
                  static_cast<uint16_t>(CallId::k_ibv_context_ops_poll_cq));
    if (!record) break;
    record.Put(reinterpret_cast<uint64_t>(cq));
    put += PutCompletions(record, out + put, answer - put, hashes.get());
  }
  return answer;
}

int StartPoll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr) {
  const Caller caller(__builtin_return_address(0));
  const ibv_cq_ex* const original = Originals<Thread, ibv_cq_ex>::Find(cq);
  const uint64_t begin = Now();
  const int answer = original->start_poll(cq, attr);
  if (!caller.IsProgram()) return answer;
  if (answer == ENOENT) {
    PutEmptyPoll(cq, kStartPoll, begin);
  } else {
    PutStep(CallId::k_ibv_cq_ex_start_poll, cq, *original, begin, answer);
  }
  return answer;
}

int NextPoll(ibv_cq_ex* cq) {
  const Caller caller(__builtin_return_address(0));
  const ibv_cq_ex* const original = Originals<Thread, ibv_cq_ex>::Find(cq);
  const uint64_t begin = Now();
  const int answer = original->next_poll(cq);
  if (caller.IsProgram()) {
    PutStep(CallId::k_ibv_cq_ex_next_poll, cq, *original, begin, answer);
  }
  return answer;
}

}  // namespace rdmaemu::layer::trace
