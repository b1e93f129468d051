// The ways in which a program posts requests to the library: one by one, as a list, or by the
// builders of ibv_qp_ex.
#include "tests/sim/traffic.h"

namespace rdmaemu::sim {
namespace {

// The program stores its bytes at the last moment. The library must not have read them earlier.
void Invert(Program& program, const std::vector<Prepared>& all) {
  for (const Prepared& one : all) {
    for (const Piece& piece : one.sources) {
      for (uint32_t i = 0; i < piece.length; i++)
        *program.Real(piece.offset + i) ^= std::byte{0xff};
    }
  }
}

// Inline bytes are at their real address, because their simulated addresses are invalid.
void FillInline(Prepared& one, Random& random) {
  if ((one.wr.send_flags & IBV_SEND_INLINE) == 0) return;
  const auto size = static_cast<uint32_t>(one.inline_bytes.size());
  const uint32_t first = random.Below(size + 1);
  const uint64_t at = reinterpret_cast<uintptr_t>(one.inline_bytes.data());
  one.sges = {{at, first, 0}, {at + first, size - first, 0}};
}

void Chain(Prepared& one, ibv_send_wr* next) {
  one.wr.sg_list = one.sges.data();
  one.wr.num_sge = static_cast<int>(one.sges.size());
  one.wr.next = next;
}

void BeginRequest(ibv_qp_ex* qp, const ibv_send_wr& wr) {
  qp->wr_id = wr.wr_id;
  qp->wr_flags = wr.send_flags;
  const auto& rdma = wr.wr.rdma;
  const auto& atomic = wr.wr.atomic;
  switch (wr.opcode) {
    case IBV_WR_SEND:
      return ibv_wr_send(qp);
    case IBV_WR_SEND_WITH_IMM:
      return ibv_wr_send_imm(qp, wr.imm_data);
    case IBV_WR_SEND_WITH_INV:
      return ibv_wr_send_inv(qp, wr.invalidate_rkey);
    case IBV_WR_RDMA_WRITE:
      return ibv_wr_rdma_write(qp, rdma.rkey, rdma.remote_addr);
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return ibv_wr_rdma_write_imm(qp, rdma.rkey, rdma.remote_addr, wr.imm_data);
    case IBV_WR_RDMA_READ:
      return ibv_wr_rdma_read(qp, rdma.rkey, rdma.remote_addr);
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return ibv_wr_atomic_cmp_swp(qp, atomic.rkey, atomic.remote_addr, atomic.compare_add,
                                   atomic.swap);
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return ibv_wr_atomic_fetch_add(qp, atomic.rkey, atomic.remote_addr, atomic.compare_add);
    case IBV_WR_LOCAL_INV:
      return ibv_wr_local_inv(qp, wr.invalidate_rkey);
    default:
      return ibv_wr_bind_mw(qp, wr.bind_mw.mw, wr.bind_mw.rkey, &wr.bind_mw.bind_info);
  }
}

void Build(ibv_qp_ex* qp, const Prepared& one) {
  BeginRequest(qp, one.wr);
  if (one.wr.opcode == IBV_WR_LOCAL_INV || one.wr.opcode == IBV_WR_BIND_MW) return;
  if (qp->qp_base.qp_type == IBV_QPT_UD) {
    ibv_wr_set_ud_addr(qp, one.wr.wr.ud.ah, one.wr.wr.ud.remote_qpn, one.wr.wr.ud.remote_qkey);
  }
  if ((one.wr.send_flags & IBV_SEND_INLINE) != 0) {
    std::vector<ibv_data_buf> buffers;
    for (const ibv_sge& sge : one.sges) {
      buffers.push_back({reinterpret_cast<void*>(sge.addr), sge.length});
    }
    return ibv_wr_set_inline_data_list(qp, buffers.size(), buffers.data());
  }
  ibv_wr_set_sge_list(qp, one.sges.size(), one.sges.data());
}

}  // namespace

int Traffic::PostByBuilders(Endpoint& endpoint, std::vector<Prepared>& all) {
  ibv_qp_ex* const qp = ibv_qp_to_qp_ex(endpoint.qp);
  if (world_.random().Below(8) == 0) {
    ibv_wr_start(qp);
    Build(qp, all.front());
    ibv_wr_abort(qp);
    world_.tally().Count("post.aborted");
  }
  Invert(*endpoint.program, all);
  ibv_wr_start(qp);
  for (const Prepared& one : all) Build(qp, one);
  Invert(*endpoint.program, all);
  world_.tally().Count("post.builders");
  return ibv_wr_complete(qp);
}

void Traffic::PostPrepared(Endpoint& endpoint) {
  std::vector<Prepared> all = std::exchange(endpoint.prepared, {});
  if (all.empty()) return;
  const Process::Entered entered(endpoint.program->process());
  Random& random = world_.random();
  for (Prepared& one : all) FillInline(one, random);
  int error = 0;
  if (random.Below(3) == 0) {
    error = PostByBuilders(endpoint, all);
  } else {
    const bool as_list = random.Below(2) == 0;
    for (size_t i = 0; i < all.size(); i++) {
      Chain(all[i], as_list && i + 1 < all.size() ? &all[i + 1].wr : nullptr);
    }
    for (size_t i = 0; i < (as_list ? 1 : all.size()) && error == 0; i++) {
      ibv_send_wr* bad = nullptr;
      error = ibv_post_send(endpoint.qp, &all[i].wr, &bad);
    }
    world_.tally().Count(as_list ? "post.list" : "post.alone");
  }
  if (error == 0) return;
  world_.verdict().Complain("verbs", endpoint.name() +
                                         " cannot post the requests that it was granted, errno " +
                                         std::to_string(error));
}

}  // namespace rdmaemu::sim
