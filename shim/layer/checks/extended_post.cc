// Checks of posting by ibv_wr_*. The work requests between ibv_wr_start and ibv_wr_complete form a
// list. The list is checked and recorded like a list of ibv_post_send.
#include <pthread.h>

#include "shim/layer/checks/extended.h"
#include "shim/layer/checks/operation.h"
#include "shim/layer/checks/posting.h"

namespace rdmaemu::layer::checks {
namespace {

// The work requests that a thread posts between ibv_wr_start and ibv_wr_complete. The provider
// holds its lock between the two calls. This lock also guards the batch.
class Batch {
 public:
  static constexpr size_t kMaxWrs = 65536;

  bool is_open() const { return is_open_; }
  // Returns whether the current thread has opened the batch.
  bool IsMine() const { return is_open_ && pthread_equal(opener_, pthread_self()); }
  bool is_empty() const { return wrs_.empty(); }

  void Open() {
    wrs_.clear();
    sges_.clear();
    opener_ = pthread_self();
    is_open_ = true;
  }
  void Close() { is_open_ = false; }

  ibv_send_wr& Add(ibv_wr_opcode opcode, unsigned flags) {
    ibv_send_wr wr{};
    wr.opcode = opcode;
    // The setters set this flag.
    wr.send_flags = flags & ~static_cast<unsigned>(IBV_SEND_INLINE);
    // A batch that is longer than any queue. The last work request replaces the one before it.
    if (wrs_.size() == kMaxWrs) wrs_.pop_back();
    wrs_.push_back(wr);
    return wrs_.back();
  }
  ibv_send_wr& last() { return wrs_.back(); }
  void AddSge(const ibv_sge& sge) {
    if (sges_.size() == kMaxWrs) return;
    sges_.push_back(sge);
    last().num_sge++;
  }
  // Returns the work requests as a list, which stays valid until the next call.
  const ibv_send_wr* List() {
    ibv_sge* sge = sges_.data();
    for (size_t i = 0; i < wrs_.size(); i++) {
      wrs_[i].sg_list = sge;
      sge += wrs_[i].num_sge;
      wrs_[i].next = i + 1 < wrs_.size() ? &wrs_[i + 1] : nullptr;
    }
    return wrs_.empty() ? nullptr : wrs_.data();
  }

 private:
  bool is_open_ = false;
  pthread_t opener_ = {};
  std::vector<ibv_send_wr> wrs_;
  std::vector<ibv_sge> sges_;
};

// Returns nullptr when there is no memory.
Batch* BatchOf(const ibv_qp_ex* qp) {
  struct OfQp {
    Batch* batch;
  };
  using Batches = Originals<OfQp, OfQp>;
  OfQp* const entry = Batches::FindOrMake(qp);
  if (entry == nullptr) return nullptr;
  if (entry->batch == nullptr) entry->batch = new Batch;
  return entry->batch;
}

// Reports ibv_wr_* calls in an order that loses work or blocks.
void ReportOrder(const char* call, const ibv_qp_ex* qp, const char* what) {
  const Section section;
  if (!section) return;
  Report(Rule::kQP_035, call, All<Qp>().FindAlive(&qp->qp_base), nullptr, nullptr, "%s", what);
}

struct WrStart : Check {
  static constexpr const char* kCall = "ibv_wr_start";
  bool Before(ibv_qp_ex* qp) {
    const Batch* const batch = BatchOf(qp);
    if (is_programs && batch != nullptr && batch->IsMine()) {
      ReportOrder(kCall, qp, "the thread's last ibv_wr_start has no ibv_wr_complete");
    }
    return true;
  }
  void After(ibv_qp_ex* qp) {
    if (Batch* const batch = BatchOf(qp)) batch->Open();
  }
};

struct WrComplete : SendCheck {
  static constexpr const char* kCall = "ibv_wr_complete";
  bool Before(ibv_qp_ex* qp_ex) {
    Batch* const batch = BatchOf(qp_ex);
    if (batch == nullptr) return true;
    if (!batch->is_open()) {
      if (is_programs) ReportOrder(kCall, qp_ex, "there was no ibv_wr_start");
      return true;
    }
    batch->Close();
    const Section section;
    if (section) Record(kCall, &qp_ex->qp_base, batch->List());
    return true;
  }
  void After(int error, ibv_qp_ex*) {
    if (qp == nullptr) return;
    const Section section;
    if (section) Finish(kCall, error, 0);
  }
};

struct WrAbort : Check {
  static constexpr const char* kCall = "ibv_wr_abort";
  bool Before(ibv_qp_ex* qp) {
    Batch* const batch = BatchOf(qp);
    if (batch == nullptr) return true;
    if (!batch->is_open() && is_programs) ReportOrder(kCall, qp, "there was no ibv_wr_start");
    batch->Close();
    return true;
  }
};

// A call that begins a work request.
template <class Derived>
struct Opens : Check {
  template <class... A>
  bool Before(ibv_qp_ex* qp, A... arguments) {
    Batch* const batch = BatchOf(qp);
    if (batch == nullptr) return true;
    if (!batch->is_open()) {
      if (is_programs) ReportOrder(Derived::kCall, qp, "there was no ibv_wr_start");
      return true;
    }
    ibv_send_wr& wr = batch->Add(Derived::kOpcode, qp->wr_flags);
    wr.wr_id = qp->wr_id;
    Derived::Set(*batch, wr, arguments...);
    return true;
  }
  template <class... A>
  static void Set(Batch&, ibv_send_wr&, A...) {}
};
// A call that completes the description of the last work request.
template <class Derived>
struct Sets : Check {
  template <class... A>
  bool Before(ibv_qp_ex* qp, A... arguments) {
    Batch* const batch = BatchOf(qp);
    if (batch == nullptr) return true;
    if (!batch->is_open() || batch->is_empty()) {
      if (is_programs) ReportOrder(Derived::kCall, qp, "no work request was begun before");
      return true;
    }
    Derived::Set(*batch, batch->last(), arguments...);
    return true;
  }
};

void SetAtomic(ibv_send_wr& wr, uint32_t rkey, uint64_t remote_addr) {
  wr.wr.atomic.rkey = rkey;
  wr.wr.atomic.remote_addr = remote_addr;
}
void SetInline(Batch& batch, ibv_send_wr& wr, const void* data, size_t length) {
  wr.send_flags |= IBV_SEND_INLINE;
  batch.AddSge({reinterpret_cast<uint64_t>(data), static_cast<uint32_t>(length), 0});
}

#define OPENS(name, function, opcode)                \
  struct name : Opens<name> {                        \
    static constexpr const char* kCall = #function;  \
    static constexpr ibv_wr_opcode kOpcode = opcode; \
  };
OPENS(WrSend, ibv_wr_send, IBV_WR_SEND)
OPENS(WrSendImm, ibv_wr_send_imm, IBV_WR_SEND_WITH_IMM)
OPENS(WrSendInv, ibv_wr_send_inv, IBV_WR_SEND_WITH_INV)
OPENS(WrSendTso, ibv_wr_send_tso, IBV_WR_TSO)
OPENS(WrBindMw, ibv_wr_bind_mw, IBV_WR_BIND_MW)
OPENS(WrLocalInv, ibv_wr_local_inv, IBV_WR_LOCAL_INV)
#undef OPENS

#define OPENS_RDMA(name, function, opcode)                                       \
  struct name : Opens<name> {                                                    \
    static constexpr const char* kCall = #function;                              \
    static constexpr ibv_wr_opcode kOpcode = opcode;                             \
    template <class... A>                                                        \
    static void Set(Batch&, ibv_send_wr& wr, uint32_t rkey, uint64_t to, A...) { \
      wr.wr.rdma.rkey = rkey;                                                    \
      wr.wr.rdma.remote_addr = to;                                               \
    }                                                                            \
  };
OPENS_RDMA(WrRead, ibv_wr_rdma_read, IBV_WR_RDMA_READ)
OPENS_RDMA(WrWrite, ibv_wr_rdma_write, IBV_WR_RDMA_WRITE)
OPENS_RDMA(WrWriteImm, ibv_wr_rdma_write_imm, IBV_WR_RDMA_WRITE_WITH_IMM)
#undef OPENS_RDMA

#define OPENS_ATOMIC(name, function, opcode)                                     \
  struct name : Opens<name> {                                                    \
    static constexpr const char* kCall = #function;                              \
    static constexpr ibv_wr_opcode kOpcode = opcode;                             \
    template <class... A>                                                        \
    static void Set(Batch&, ibv_send_wr& wr, uint32_t rkey, uint64_t to, A...) { \
      SetAtomic(wr, rkey, to);                                                   \
    }                                                                            \
  };
OPENS_ATOMIC(WrCompareSwap, ibv_wr_atomic_cmp_swp, IBV_WR_ATOMIC_CMP_AND_SWP)
OPENS_ATOMIC(WrFetchAdd, ibv_wr_atomic_fetch_add, IBV_WR_ATOMIC_FETCH_AND_ADD)
#undef OPENS_ATOMIC

struct WrAtomicWrite : Opens<WrAtomicWrite> {
  static constexpr const char* kCall = "ibv_wr_atomic_write";
  static constexpr ibv_wr_opcode kOpcode = IBV_WR_ATOMIC_WRITE;
  static void Set(Batch& batch, ibv_send_wr& wr, uint32_t rkey, uint64_t to, const void* data) {
    SetAtomic(wr, rkey, to);
    SetInline(batch, wr, data, 8);
  }
};

struct WrSetUdAddr : Sets<WrSetUdAddr> {
  static constexpr const char* kCall = "ibv_wr_set_ud_addr";
  static void Set(Batch&, ibv_send_wr& wr, ibv_ah* ah, uint32_t qpn, uint32_t qkey) {
    wr.wr.ud = {ah, qpn, qkey};
  }
};
struct WrSetSge : Sets<WrSetSge> {
  static constexpr const char* kCall = "ibv_wr_set_sge";
  static void Set(Batch& batch, ibv_send_wr&, uint32_t lkey, uint64_t address, uint32_t length) {
    batch.AddSge({address, length, lkey});
  }
};
struct WrSetSgeList : Sets<WrSetSgeList> {
  static constexpr const char* kCall = "ibv_wr_set_sge_list";
  static void Set(Batch& batch, ibv_send_wr&, size_t count, const ibv_sge* list) {
    for (size_t i = 0; i < count; i++) batch.AddSge(list[i]);
  }
};
struct WrSetInlineData : Sets<WrSetInlineData> {
  static constexpr const char* kCall = "ibv_wr_set_inline_data";
  static void Set(Batch& batch, ibv_send_wr& wr, void* data, size_t length) {
    SetInline(batch, wr, data, length);
  }
};
struct WrSetInlineDataList : Sets<WrSetInlineDataList> {
  static constexpr const char* kCall = "ibv_wr_set_inline_data_list";
  static void Set(Batch& batch, ibv_send_wr& wr, size_t count, const ibv_data_buf* list) {
    for (size_t i = 0; i < count; i++) SetInline(batch, wr, list[i].addr, list[i].length);
  }
};

}  // namespace

void AdoptQp(ibv_qp_ex* qp) {
  ibv_qp_ex* const original = qp == nullptr ? nullptr : TablesOf<ibv_qp_ex>::FindOrMake(qp);
  if (original == nullptr) return;
  ReplaceIn<WrStart, &ibv_qp_ex::wr_start>(*qp, *original);
  ReplaceIn<WrComplete, &ibv_qp_ex::wr_complete>(*qp, *original);
  ReplaceIn<WrAbort, &ibv_qp_ex::wr_abort>(*qp, *original);
  ReplaceIn<WrSend, &ibv_qp_ex::wr_send>(*qp, *original);
  ReplaceIn<WrSendImm, &ibv_qp_ex::wr_send_imm>(*qp, *original);
  ReplaceIn<WrSendInv, &ibv_qp_ex::wr_send_inv>(*qp, *original);
  ReplaceIn<WrSendTso, &ibv_qp_ex::wr_send_tso>(*qp, *original);
  ReplaceIn<WrBindMw, &ibv_qp_ex::wr_bind_mw>(*qp, *original);
  ReplaceIn<WrLocalInv, &ibv_qp_ex::wr_local_inv>(*qp, *original);
  ReplaceIn<WrRead, &ibv_qp_ex::wr_rdma_read>(*qp, *original);
  ReplaceIn<WrWrite, &ibv_qp_ex::wr_rdma_write>(*qp, *original);
  ReplaceIn<WrWriteImm, &ibv_qp_ex::wr_rdma_write_imm>(*qp, *original);
  ReplaceIn<WrCompareSwap, &ibv_qp_ex::wr_atomic_cmp_swp>(*qp, *original);
  ReplaceIn<WrFetchAdd, &ibv_qp_ex::wr_atomic_fetch_add>(*qp, *original);
  ReplaceIn<WrAtomicWrite, &ibv_qp_ex::wr_atomic_write>(*qp, *original);
  ReplaceIn<WrSetUdAddr, &ibv_qp_ex::wr_set_ud_addr>(*qp, *original);
  ReplaceIn<WrSetSge, &ibv_qp_ex::wr_set_sge>(*qp, *original);
  ReplaceIn<WrSetSgeList, &ibv_qp_ex::wr_set_sge_list>(*qp, *original);
  ReplaceIn<WrSetInlineData, &ibv_qp_ex::wr_set_inline_data>(*qp, *original);
  ReplaceIn<WrSetInlineDataList, &ibv_qp_ex::wr_set_inline_data_list>(*qp, *original);
}

}  // namespace rdmaemu::layer::checks
