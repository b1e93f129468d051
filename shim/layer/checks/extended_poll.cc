// Polling by ibv_start_poll, ibv_next_poll and ibv_end_poll.
#include <pthread.h>

#include "shim/layer/checks/extended.h"
#include "shim/layer/checks/operation.h"
#include "shim/layer/checks/posting.h"

namespace rdmaemu::layer::checks {
namespace {

// Records the completion that the CQ shows as taken.
void CompleteCurrent(ibv_cq_ex* cq, const char* call, bool is_programs) {
  const ibv_cq_ex* const original = TablesOf<ibv_cq_ex>::Find(cq);
  if (cq->read_qp_num == nullptr) return;
  ibv_wc wc{};
  wc.wr_id = cq->wr_id;
  wc.status = cq->status;
  wc.qp_num = cq->read_qp_num(cq);
  if (wc.status == IBV_WC_SUCCESS) wc.opcode = original->read_opcode(cq);
  const Section section;
  if (section) Complete(cq->context, wc, call, is_programs);
}

struct StartPoll : Check {
  static constexpr const char* kCall = "ibv_start_poll";
  bool Before(ibv_cq_ex* address, ibv_poll_cq_attr*) {
    const Section section;
    const Cq* const cq = section ? All<Cq>().FindAlive(address) : nullptr;
    if (cq == nullptr || !is_programs || !cq->is_polling) return true;
    if (!pthread_equal(cq->poller, pthread_self())) return true;
    Report(Rule::kCQ_015, kCall, cq, nullptr, nullptr,
           "the thread's last ibv_start_poll of %s has no ibv_end_poll", NameOf(*cq).c_str());
    return true;
  }
  void After(int error, ibv_cq_ex* address, ibv_poll_cq_attr*) {
    {
      const Section section;
      Cq* const cq = section ? All<Cq>().FindAlive(address) : nullptr;
      if (cq == nullptr) return;
      cq->polls++;
      cq->is_polled_since_event = true;
      cq->is_armed_late = false;
      cq->is_polling = error == 0;
      cq->poller = pthread_self();
    }
    if (error == 0) CompleteCurrent(address, kCall, is_programs);
  }
};

struct NextPoll : Check {
  static constexpr const char* kCall = "ibv_next_poll";
  void After(int error, ibv_cq_ex* address) {
    if (error == 0) CompleteCurrent(address, kCall, is_programs);
  }
};

struct EndPoll : Check {
  static constexpr const char* kCall = "ibv_end_poll";
  bool Before(ibv_cq_ex* address) {
    const Section section;
    Cq* const cq = section ? All<Cq>().FindAlive(address) : nullptr;
    if (cq == nullptr) return true;
    if (!cq->is_polling && is_programs) {
      Report(Rule::kCQ_015, kCall, cq, nullptr, nullptr, "no ibv_start_poll of %s has returned 0",
             NameOf(*cq).c_str());
      return false;
    }
    cq->is_polling = false;
    return true;
  }
};

// Reader functions of fields that a failed completion does not have.
#define READS(name, function)                                                      \
  struct name : Check {                                                            \
    static constexpr const char* kCall = #function;                                \
    bool Before(ibv_cq_ex* address) {                                              \
      if (!is_programs || address->status == IBV_WC_SUCCESS) return true;          \
      const Section section;                                                       \
      if (!section) return true;                                                   \
      Report(Rule::kCQ_014, kCall, All<Cq>().FindAlive(address), nullptr, nullptr, \
             "the status is %d", address->status);                                 \
      return true;                                                                 \
    }                                                                              \
  };
READS(ReadOpcode, ibv_wc_read_opcode)
READS(ReadByteLen, ibv_wc_read_byte_len)
READS(ReadImmData, ibv_wc_read_imm_data)
READS(ReadSrcQp, ibv_wc_read_src_qp)
READS(ReadWcFlags, ibv_wc_read_wc_flags)
#undef READS

}  // namespace

void AdoptCq(ibv_cq_ex* cq) {
  ibv_cq_ex* const original = cq == nullptr ? nullptr : TablesOf<ibv_cq_ex>::FindOrMake(cq);
  if (original == nullptr) return;
  ReplaceIn<StartPoll, &ibv_cq_ex::start_poll>(*cq, *original);
  ReplaceIn<NextPoll, &ibv_cq_ex::next_poll>(*cq, *original);
  ReplaceIn<EndPoll, &ibv_cq_ex::end_poll>(*cq, *original);
  ReplaceIn<ReadOpcode, &ibv_cq_ex::read_opcode>(*cq, *original);
  ReplaceIn<ReadByteLen, &ibv_cq_ex::read_byte_len>(*cq, *original);
  ReplaceIn<ReadImmData, &ibv_cq_ex::read_imm_data>(*cq, *original);
  ReplaceIn<ReadSrcQp, &ibv_cq_ex::read_src_qp>(*cq, *original);
  ReplaceIn<ReadWcFlags, &ibv_cq_ex::read_wc_flags>(*cq, *original);
}

}  // namespace rdmaemu::layer::checks
