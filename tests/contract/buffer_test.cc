// The additions of rdma-core 57 to 65: ibv_alloc_buf(3), ibv_reg_mr_ex(3), and the functions that
// this device does not support.
#include <cerrno>
#include <cstring>

#include "tests/contract/support/loopback.h"
#include "tests/contract/support/newer_verbs.h"

namespace rdma_contract {
namespace {

class BufferTest : public LoopbackTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(LoopbackTest::SetUp());
    if (!verbs.Find()) GTEST_SKIP() << "libibverbs is older than rdma-core 65";
  }
  char* Alloc(size_t bytes, newer::Buffer** buffer) {
    return static_cast<char*>(verbs.alloc_buf(pd.get(), bytes, buffer));
  }
  // Expects that a registration fails, and that a correct one works afterwards.
  void ExpectRefused(newer::MrInitAttr attr, int error) {
    errno = 0;
    EXPECT_EQ(verbs.reg_mr_ex(pd.get(), &attr), nullptr);
    EXPECT_EQ(errno, error);
    char byte = 0;
    newer::MrInitAttr correct{.length = 1, .comp_mask = newer::kAddr, .addr = &byte};
    EXPECT_TRUE(Mr(verbs.reg_mr_ex(pd.get(), &correct)));
  }
  newer::Library verbs;
};

TEST_F(BufferTest, MovesEveryByteBetweenBuffers) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  for (const size_t size : {1, 255, 256, 257, 4095, 4096, 4097, 1 << 20}) {
    SCOPED_TRACE(size);
    newer::Buffer *from = nullptr, *to = nullptr;
    char* const source = Alloc(size, &from);
    char* const target = Alloc(size, &to);
    ASSERT_TRUE(source && target && from && to);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(source) % 4096, 0u);
    for (size_t i = 0; i < size; i++) source[i] = static_cast<char>(i * 7 + i / 251 + 1);
    {
      const Mr read_from(verbs.reg_buf_mr(pd.get(), from, source, size, 0));
      const Mr write_to(verbs.reg_buf_mr(pd.get(), to, target, size, kAllAccess));
      ASSERT_TRUE(read_from && write_to);
      EXPECT_EQ(write_to->addr, target);
      EXPECT_EQ(write_to->length, size);
      ibv_sge piece{reinterpret_cast<uintptr_t>(source), static_cast<uint32_t>(size),
                    read_from->lkey};
      ibv_send_wr wr{};
      wr.sg_list = &piece;
      wr.num_sge = 1;
      wr.opcode = IBV_WR_RDMA_WRITE;
      wr.send_flags = IBV_SEND_SIGNALED;
      wr.wr.rdma = {reinterpret_cast<uintptr_t>(target), write_to->rkey};
      ibv_send_wr* bad = nullptr;
      ASSERT_EQ(ibv_post_send(a.get(), &wr, &bad), 0);
      const Completion done = PollOne(send_cq.get());
      ASSERT_TRUE(done.found);
      ASSERT_EQ(done.wc.status, IBV_WC_SUCCESS);
      EXPECT_EQ(memcmp(source, target, size), 0);
    }
    verbs.free_buf(from);
    verbs.free_buf(to);
  }
}

TEST_F(BufferTest, ARegionLiesWithinItsBuffer) {
  newer::Buffer* buffer = nullptr;
  char* const memory = Alloc(5000, &buffer);
  ASSERT_NE(memory, nullptr);
  const auto reg = [&](char* begin, size_t length) {
    errno = 0;
    return Mr(verbs.reg_buf_mr(pd.get(), buffer, begin, length, 0)) ? 0 : errno;
  };
  EXPECT_EQ(reg(memory, 5000), 0);
  EXPECT_EQ(reg(memory + 4999, 1), 0);
  EXPECT_EQ(reg(memory, 5001), EINVAL);
  EXPECT_EQ(reg(memory + 4999, 2), EINVAL);
  EXPECT_EQ(reg(memory - 1, 1), EINVAL);
  EXPECT_EQ(reg(memory + 1, SIZE_MAX), EINVAL);
  EXPECT_EQ(reg(memory, 5000), 0);
  verbs.free_buf(buffer);
}

TEST_F(BufferTest, ABufferBelongsToItsProtectionDomain) {
  const Pd other(ibv_alloc_pd(context.get()));
  newer::Buffer* buffer = nullptr;
  char* const memory = Alloc(1, &buffer);
  ASSERT_TRUE(other && memory);
  errno = 0;
  EXPECT_EQ(verbs.reg_buf_mr(other.get(), buffer, memory, 1, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_TRUE(Mr(verbs.reg_buf_mr(pd.get(), buffer, memory, 1, 0)));
  verbs.free_buf(buffer);
}

TEST_F(BufferTest, ABufferIsNoDmaBuf) {
  newer::Buffer* buffer = nullptr;
  ASSERT_NE(Alloc(1, &buffer), nullptr);
  errno = 0;
  EXPECT_EQ(verbs.export_fd(buffer), -1);
  EXPECT_EQ(errno, ENODATA);
  verbs.free_buf(buffer);
}

TEST_F(BufferTest, ASizeThatCannotBeFails) {
  newer::Buffer* buffer = nullptr;
  errno = 0;
  EXPECT_EQ(Alloc(SIZE_MAX, &buffer), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(Alloc(SIZE_MAX / 4, &buffer), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(buffer, nullptr);
  EXPECT_NE(Alloc(1, &buffer), nullptr);
  verbs.free_buf(buffer);
}

TEST_F(BufferTest, RegistrationByAttributesWantsFieldsThatAgree) {
  newer::Buffer* buffer = nullptr;
  char* const memory = Alloc(64, &buffer);
  ASSERT_NE(memory, nullptr);
  const newer::MrInitAttr good{
      .length = 64, .comp_mask = newer::kBuf | newer::kAddr, .addr = memory, .buf = buffer};
  newer::MrInitAttr attr = good;
  EXPECT_TRUE(Mr(verbs.reg_mr_ex(pd.get(), &attr)));
  attr.comp_mask = newer::kBuf;  // no address
  ExpectRefused(attr, EINVAL);
  attr.comp_mask = newer::kBuf | newer::kAddr | newer::kFd;
  ExpectRefused(attr, EINVAL);
  attr.comp_mask = newer::kBuf | newer::kAddr | newer::kFdOffset;
  ExpectRefused(attr, EINVAL);
  attr.comp_mask = 0;  // neither address nor descriptor
  ExpectRefused(attr, EINVAL);
  attr.comp_mask = newer::kFd | newer::kAddr;
  ExpectRefused(attr, EINVAL);
  attr.comp_mask = newer::kFd;
  ExpectRefused(attr, EOPNOTSUPP);
  attr.comp_mask = newer::kAddr | newer::kDmah;
  ExpectRefused(attr, EOPNOTSUPP);
  attr.comp_mask = newer::kAddr | uint64_t{1} << 40;
  ExpectRefused(attr, EOPNOTSUPP);
  verbs.free_buf(buffer);
}

// The peer reaches the region at the address that the program chose.
TEST_F(BufferTest, RegistrationByAttributesTakesAnIova) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  char target[16] = {};
  const uint64_t iova = 0x10000 + reinterpret_cast<uintptr_t>(target) % 4096;  // as rxe demands
  newer::MrInitAttr attr{.length = sizeof target,
                         .access = kAllAccess,
                         .comp_mask = newer::kAddr | newer::kIova,
                         .iova = iova,
                         .addr = target};
  const Mr region(verbs.reg_mr_ex(pd.get(), &attr));
  ASSERT_TRUE(region);
  memset(data.data, 0x5a, sizeof target);
  ibv_sge piece = Piece();
  ibv_send_wr wr{};
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma = {iova, region->rkey};
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(a.get(), &wr, &bad), 0);
  const Completion done = PollOne(send_cq.get());
  ASSERT_TRUE(done.found);
  ASSERT_EQ(done.wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(target, data.data, sizeof target), 0);
}

TEST_F(BufferTest, WhatTheDeviceLacksAnswersEopnotsupp) {
  uint64_t room[16] = {};
  errno = 0;
  EXPECT_EQ(verbs.alloc_dmah(context.get(), room), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  errno = 0;
  EXPECT_EQ(verbs.create_counter(context.get(), room), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(verbs.counter_caps(context.get(), room, 16), EOPNOTSUPP);
  EXPECT_EQ(verbs.port_speed(context.get(), 1, room), EOPNOTSUPP);
}

// A program of rdma-core 65 asks for six operations before those that this header knows. The
// context says that it does not have them (verbs_get_ctx_op compares the distance from the end).
TEST_F(BufferTest, ContextsExcludeTheOperationsOfNewerHeaders) {
  const verbs_context* const extended = verbs_get_ctx(context.get());
  ASSERT_NE(extended, nullptr);
  EXPECT_LE(extended->sz, sizeof(verbs_context));
}

}  // namespace
}  // namespace rdma_contract
