// Hashes of payloads (`rdmaemu run --payload-hashes`). The hash of posted bytes is computed before
// the post. The hash of received bytes is computed before the program gets the completion. Stores
// posted receives and READs until their completions. All functions are thread-safe. A call in a
// signal handler that interrupts one of them gets no hash.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include "shim/layer/trace/payload_hash.h"
#include "shim/layer/trace/table.h"

namespace rdmaemu::layer::trace {

// True when hashes are requested. OpenPayloads sets it once.
extern bool g_hashes_payloads;
// Call this in a constructor when the recording requests hashes.
void OpenPayloads();

// ---- objects

void NoteQp(const ibv_qp* qp);
void ForgetQp(const ibv_qp* qp);
void ClearQp(const ibv_qp* qp);  // the queue pair moves to RESET
void ForgetSrq(const ibv_srq* srq);
// `state`: why SGEs of the region have no hash.
void NoteMr(const ibv_mr* mr, HashState state);
void ForgetMr(const ibv_mr* mr);

// ---- posts

// The work of one post.
struct PostTicket {
  uint64_t first = 0;  // serial number
  uint32_t count = 0;
};
// Call these before the post. They write the records of the hashes.
PostTicket BeforePost(CallId id, const ibv_qp* qp, const ibv_send_wr* wr);
PostTicket BeforePost(CallId id, const ibv_qp* qp, const ibv_recv_wr* wr);
PostTicket BeforePost(CallId id, const ibv_srq* srq, const ibv_recv_wr* wr);
// Call these after a post that refused `bad` and the requests behind it.
void AfterFailedPost(PostTicket ticket, const ibv_qp* qp, const ibv_send_wr* wr,
                     const ibv_send_wr* bad);
void AfterFailedPost(PostTicket ticket, const ibv_qp* qp, const ibv_recv_wr* wr,
                     const ibv_recv_wr* bad);
void AfterFailedPost(PostTicket ticket, const ibv_srq* srq, const ibv_recv_wr* wr,
                     const ibv_recv_wr* bad);

// ---- builders (ibv_wr_*)

enum class Builds : uint8_t { kSend, kRead, kOther };
void BuildStart(const ibv_qp_ex* qp);
void Build(const ibv_qp_ex* qp, Builds what);
void BuildSges(CallId id, const ibv_qp_ex* qp, const ibv_sge* sges, size_t count);
void BuildInline(CallId id, const ibv_qp_ex* qp, const ibv_data_buf* buffers, size_t count);
// Drops the builder's requests since BuildStart, because they were not posted.
void BuildDropped(const ibv_qp_ex* qp);

// ---- completions

// `knows_qp`: the completion has qp_num and byte_len.
PayloadHash HashOfCompletion(const ibv_context* context, const ibv_wc& completion, bool knows_qp);

// ---- hooks of SlowCall and FastCall (wrap.h). They do nothing for most calls.

template <CallId kId, class... A>
void BeforeObjectCall(const std::tuple<A...>& arguments) {
  if constexpr (kId == CallId::k_ibv_destroy_qp) {
    if (g_hashes_payloads) ForgetQp(std::get<0>(arguments));
  } else if constexpr (kId == CallId::k_ibv_destroy_srq) {
    if (g_hashes_payloads) ForgetSrq(std::get<0>(arguments));
  } else if constexpr (kId == CallId::k_ibv_dereg_mr) {
    if (g_hashes_payloads) ForgetMr(std::get<0>(arguments));
  } else if constexpr (kId == CallId::k_ibv_modify_qp) {
    const ibv_qp_attr* const attr = std::get<1>(arguments);
    if (g_hashes_payloads && (std::get<2>(arguments) & IBV_QP_STATE) != 0 &&
        attr->qp_state == IBV_QPS_RESET) {
      ClearQp(std::get<0>(arguments));
    }
  }
}

inline HashState StateOfMr(const void* address, size_t length, uint64_t iova, int access) {
  if ((access & IBV_ACCESS_ZERO_BASED) != 0) return HashState::kZeroBased;
  if (address == nullptr && length == SIZE_MAX) return HashState::kImplicit;
  return iova == reinterpret_cast<uintptr_t>(address) ? HashState::kHashed : HashState::kOtherIova;
}

template <CallId kId, class... A>
void AfterMrCall(const ibv_mr* mr, const std::tuple<A...>& arguments) {
  if (!g_hashes_payloads || mr == nullptr) return;
  if constexpr (kId == CallId::k_ibv_reg_mr) {
    const void* const address = std::get<1>(arguments);
    NoteMr(mr, StateOfMr(address, std::get<2>(arguments), reinterpret_cast<uintptr_t>(address),
                         std::get<3>(arguments)));
  } else if constexpr (kId == CallId::k_ibv_reg_mr_iova || kId == CallId::k_ibv_reg_mr_iova2) {
    NoteMr(mr, StateOfMr(std::get<1>(arguments), std::get<2>(arguments), std::get<3>(arguments),
                         static_cast<int>(std::get<4>(arguments))));
  } else if constexpr (kId == CallId::k_ibv_reg_buf_mr) {
    const void* const address = std::get<2>(arguments);
    NoteMr(mr, StateOfMr(address, std::get<3>(arguments), reinterpret_cast<uintptr_t>(address),
                         std::get<4>(arguments)));
  } else if constexpr (kId == CallId::k_ibv_reg_mr_ex) {
    const auto& request = shim::newer::LayoutOf(std::get<1>(arguments));
    const bool has_iova = (request.fields & shim::newer::kHasIova) != 0;
    if ((request.fields & shim::newer::kHasAddress) == 0) return NoteMr(mr, HashState::kDmabuf);
    NoteMr(mr, StateOfMr(request.address, request.length,
                         has_iova ? request.iova : reinterpret_cast<uintptr_t>(request.address),
                         request.access));
  } else if constexpr (kId == CallId::k_ibv_reg_dmabuf_mr) {
    NoteMr(mr, HashState::kDmabuf);
  } else if constexpr (kId == CallId::k_ibv_import_mr) {
    NoteMr(mr, HashState::kImported);
  } else if constexpr (kId == CallId::k_verbs_context_alloc_null_mr) {
    NoteMr(mr, HashState::kNullMr);
  } else if constexpr (kId == CallId::k_verbs_context_reg_dm_mr) {
    NoteMr(mr, HashState::kDeviceMemory);
  }
}

template <class T>
inline constexpr bool kIsWork = std::is_same_v<T, ibv_send_wr*> || std::is_same_v<T, ibv_recv_wr*>;

// Of a builder's call.
template <CallId kId, class... A>
void BeforeBuild(ibv_qp_ex* qp, A... arguments) {
  const std::tuple<A...> rest(arguments...);
  if constexpr (kId == CallId::k_ibv_qp_ex_wr_start) {
    BuildStart(qp);
  } else if constexpr (kId == CallId::k_ibv_qp_ex_wr_abort) {
    BuildDropped(qp);
  } else if constexpr (kId == CallId::k_ibv_qp_ex_wr_rdma_read) {
    Build(qp, Builds::kRead);
  } else if constexpr (kId == CallId::k_ibv_qp_ex_wr_send ||
                       kId == CallId::k_ibv_qp_ex_wr_send_imm ||
                       kId == CallId::k_ibv_qp_ex_wr_send_inv ||
                       kId == CallId::k_ibv_qp_ex_wr_rdma_write ||
                       kId == CallId::k_ibv_qp_ex_wr_rdma_write_imm) {
    Build(qp, Builds::kSend);
  } else if constexpr (kId == CallId::k_ibv_qp_ex_wr_atomic_cmp_swp ||
                       kId == CallId::k_ibv_qp_ex_wr_atomic_fetch_add ||
                       kId == CallId::k_ibv_qp_ex_wr_send_tso) {
    Build(qp, Builds::kOther);
  } else if constexpr (kId == CallId::k_ibv_qp_ex_wr_set_sge) {
    const ibv_sge sge{std::get<1>(rest), std::get<2>(rest), std::get<0>(rest)};
    BuildSges(kId, qp, &sge, 1);
  } else if constexpr (kId == CallId::k_ibv_qp_ex_wr_set_sge_list) {
    BuildSges(kId, qp, std::get<1>(rest), std::get<0>(rest));
  } else if constexpr (kId == CallId::k_ibv_qp_ex_wr_set_inline_data) {
    const ibv_data_buf buffer{std::get<0>(rest), std::get<1>(rest)};
    BuildInline(kId, qp, &buffer, 1);
  } else if constexpr (kId == CallId::k_ibv_qp_ex_wr_set_inline_data_list) {
    BuildInline(kId, qp, std::get<1>(rest), std::get<0>(rest));
  }
}

// Makes the hashes of a data-path call before the call.
template <CallId kId, class First, class... A>
PostTicket BeforeWork(First first, A... arguments) {
  if constexpr (std::is_same_v<First, ibv_qp_ex*>) {
    BeforeBuild<kId>(first, arguments...);
  } else if constexpr (sizeof...(A) == 2 && !std::is_same_v<First, ibv_wq*>) {
    using Wr = std::tuple_element_t<0, std::tuple<A...>>;
    if constexpr (kIsWork<Wr>) return BeforePost(kId, first, std::get<0>(std::tuple(arguments...)));
  }
  return {};
}
// Drops the work that a failed data-path call did not post.
template <CallId kId, class First, class... A>
void AfterFailedWork(PostTicket ticket, First first, A... arguments) {
  if constexpr (kId == CallId::k_ibv_qp_ex_wr_complete) {
    BuildDropped(first);
  } else if constexpr (sizeof...(A) == 2 && !std::is_same_v<First, ibv_wq*> &&
                       !std::is_same_v<First, ibv_qp_ex*>) {
    using Wr = std::tuple_element_t<0, std::tuple<A...>>;
    const std::tuple<A...> rest(arguments...);
    if constexpr (kIsWork<Wr>) {
      AfterFailedPost(ticket, first, std::get<0>(rest), *std::get<1>(rest));
    }
  }
}

}  // namespace rdmaemu::layer::trace
