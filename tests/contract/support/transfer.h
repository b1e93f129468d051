// One message from the local to the remote side, or back for a READ. Posts it, waits for all its
// completions, checks their fields, then compares every byte and every guard.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "tests/contract/support/side.h"

namespace rdma_contract {

inline const char* OperationName(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_SEND:
      return "Send";
    case IBV_WR_SEND_WITH_IMM:
      return "SendWithImm";
    case IBV_WR_RDMA_WRITE:
      return "Write";
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return "WriteWithImm";
    case IBV_WR_RDMA_READ:
      return "Read";
    default:
      return "Other";
  }
}

inline uint32_t BytesOf(ibv_mtu mtu) { return 128u << mtu; }

// The sizes at which the number or kind of packets changes.
inline std::vector<uint32_t> SizesAround(ibv_mtu path_mtu) {
  const uint32_t mtu = BytesOf(path_mtu);
  return {0,       1,           3,     mtu - 1,        mtu,     mtu + 1, 2 * mtu - 1,
          2 * mtu, 2 * mtu + 1, 65536, (1u << 20) + 3, 8u << 20};
}

inline bool TakesAReceive(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
         opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
inline bool HasImmediate(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

class Transfer {
 public:
  Transfer(Side& local, Side& remote, const Pair& pair, uint32_t size)
      : local_(local), remote_(remote), pair_(pair), size_(size) {
    here_ = Allocate(size);
    there_ = Allocate(size);
    here_region_ = Registered(local, here_);
    there_region_ = Registered(remote, there_);
  }

  // `from` and `to` are the lengths of the pieces. A WRITE and a READ have one range at the remote
  // side, so they ignore the remote layout.
  void Run(ibv_wr_opcode opcode, const std::vector<uint32_t>& here,
           const std::vector<uint32_t>& there) {
    constexpr uint32_t kImmediate = 0x89abcdef;
    const bool read = opcode == IBV_WR_RDMA_READ;
    const uint32_t seed = size_ * 8 + opcode;
    FillPattern((read ? there_ : here_).bytes(), seed);
    if (TakesAReceive(opcode)) {
      WorkRequest receive{.wr_id = 1000};
      if (opcode != IBV_WR_RDMA_WRITE_WITH_IMM)
        AddPieces(receive, there_, there_region_.lkey, there);
      ASSERT_EQ(remote_.PostReceive(pair_.remote, receive), 0);
    }
    WorkRequest request{.wr_id = 2000,
                        .opcode = opcode,
                        .imm = kImmediate,
                        .remote_address = there_.address(),
                        .rkey = there_region_.rkey};
    AddPieces(request, here_, here_region_.lkey, here);
    ASSERT_EQ(local_.PostSend(pair_.local, request), 0);

    const Completion sent = local_.Poll(pair_.local, Queue::kSend);
    ASSERT_TRUE(sent.found);
    ASSERT_EQ(sent.wc.status, IBV_WC_SUCCESS) << Describe(sent);
    EXPECT_EQ(sent.wc.wr_id, 2000u);
    EXPECT_EQ(sent.wc.opcode, read ? IBV_WC_RDMA_READ
                              : opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM
                                  ? IBV_WC_SEND
                                  : IBV_WC_RDMA_WRITE);
    EXPECT_EQ(sent.wc.qp_num, pair_.local_address.qpn);
    if (TakesAReceive(opcode)) {
      const Completion received = remote_.Poll(pair_.remote, Queue::kReceive);
      ASSERT_TRUE(received.found);
      ASSERT_EQ(received.wc.status, IBV_WC_SUCCESS) << Describe(received);
      EXPECT_EQ(received.wc.wr_id, 1000u);
      EXPECT_EQ(received.wc.byte_len, size_);
      EXPECT_EQ(received.wc.qp_num, pair_.remote_address.qpn);
      EXPECT_EQ(received.wc.opcode,
                opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
      EXPECT_EQ((received.wc.wc_flags & IBV_WC_WITH_IMM) != 0, HasImmediate(opcode));
      if (HasImmediate(opcode)) {
        EXPECT_EQ(ntohl(received.wc.imm_data), kImmediate);
      }
    }
    EXPECT_EQ(FirstDifference(here_.bytes(), seed), -1);
    EXPECT_EQ(FirstDifference(there_.bytes(), seed), -1);
    EXPECT_TRUE(GuardsIntact());
  }

  void Forget() {
    if (size_ == 0) return;
    ASSERT_EQ(local_.Deregister(here_region_.index), 0);
    ASSERT_EQ(remote_.Deregister(there_region_.index), 0);
  }

 private:
  // Returns an empty Region for a buffer of length 0, because a region may not have length 0.
  static Region Registered(Side& side, const Buffer& buffer) {
    if (buffer.size == 0) return {};
    const Region region = side.Register(buffer);
    EXPECT_EQ(region.error, 0);
    return region;
  }

  Side& local_;
  Side& remote_;
  Pair pair_;
  uint32_t size_;
  Buffer here_, there_;
  Region here_region_, there_region_;
};

}  // namespace rdma_contract
