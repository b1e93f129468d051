// Habits of rdma_rxe of Linux 6.12, as the profile rxe-6.12 has them. Each test fails on the
// profile rxe, unless a comment says otherwise. emulator/verbs/profiles/rxe-6.12.toml names the
// source of each.
#include <poll.h>

#include <cerrno>
#include <cstring>

#include "tests/contract/support/loopback.h"
#include "tests/contract/support/newer_verbs.h"

namespace rdma_contract {
namespace {

constexpr uint32_t kRouteBytes = 40;
constexpr uint32_t kQkey = 0x11111111;

class Rxe612 : public LoopbackTest {
 protected:
  int ErrnoOfRegion(int access) {
    errno = 0;
    const Mr region(ibv_reg_mr(pd.get(), data.data, data.size, access));
    return region ? 0 : errno;
  }
  bool NextEventIs(ibv_event_type type) {
    pollfd waiting{context->async_fd, POLLIN, 0};
    if (poll(&waiting, 1, kPatience_ms) != 1) return false;
    ibv_async_event event{};
    if (ibv_get_async_event(context.get(), &event) != 0) return false;
    ibv_ack_async_event(&event);
    return event.event_type == type;
  }
};

TEST_F(Rxe612, HasTheLimitsOfTheDriver) {
  ibv_device_attr attr{};
  ASSERT_EQ(ibv_query_device(context.get(), &attr), 0);
  EXPECT_EQ(attr.device_cap_flags, 0x01223c76u) << "the lower half is that of 6.1";
  EXPECT_EQ(attr.max_qp, 1048560);
  EXPECT_EQ(attr.max_mr, 524287);
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(context.get(), 1, &port), 0);
  EXPECT_EQ(port.max_msg_sz, 0x80000000u);
}

// No rxe_odp.c in Linux 6.12. Without paging, 6.1 refuses the flag with EINVAL.
TEST_F(Rxe612, HasNoPaging) {
  ibv_device_attr_ex attr{};
  ASSERT_EQ(ibv_query_device_ex(context.get(), nullptr, &attr), 0);
  EXPECT_EQ(attr.odp_caps.general_caps, 0u);
  data = Allocate(4096);
  EXPECT_EQ(ErrnoOfRegion(IBV_ACCESS_ON_DEMAND), EOPNOTSUPP);
}

TEST_F(Rxe612, RefusesAccessThatTheDriverDoesNotUse) {
  data = Allocate(4096);
  EXPECT_EQ(ErrnoOfRegion(IBV_ACCESS_ZERO_BASED), EOPNOTSUPP);
  EXPECT_EQ(ErrnoOfRegion(IBV_ACCESS_HUGETLB), EOPNOTSUPP);
  EXPECT_EQ(ErrnoOfRegion(IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_WRITE), EINVAL);
  EXPECT_EQ(ErrnoOfRegion(0x8000), EINVAL);
  EXPECT_EQ(ErrnoOfRegion(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING), 0);
  EXPECT_EQ(ErrnoOfRegion(kAllAccess | IBV_ACCESS_MW_BIND), 0);
}

TEST_F(Rxe612, RefusesAccessOfAQpThatTheDriverDoesNotUse) {
  const Cq cq = MakeCq();
  const Qp qp = MakeQp(IBV_QPT_RC, cq.get());
  ASSERT_TRUE(qp);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  const auto modify = [&](unsigned access) {
    attr.qp_access_flags = access;
    return ibv_modify_qp(qp.get(), &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  };
  EXPECT_EQ(modify(IBV_ACCESS_HUGETLB), EINVAL);
  EXPECT_EQ(modify(kAllAccess | IBV_ACCESS_ZERO_BASED), EINVAL);
  EXPECT_EQ(modify(kAllAccess | IBV_ACCESS_MW_BIND), 0);
}

TEST_F(Rxe612, ARegionWithoutRemoteRightsHasAnRkeyThatGrantsNothing) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  const Mr local(ibv_reg_mr(pd.get(), data.data, data.size, IBV_ACCESS_LOCAL_WRITE));
  ASSERT_TRUE(local);
  EXPECT_NE(local->rkey, 0u);
  EXPECT_EQ(local->rkey, local->lkey);
  ibv_sge piece = Piece();
  ibv_send_wr wr{};
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = data.address();
  wr.wr.rdma.rkey = local->rkey;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(a.get(), &wr, &bad), 0);
  EXPECT_EQ(PollOne(send_cq.get()).wc.status, IBV_WC_REM_ACCESS_ERR);
}

// The driver has rxe_rereg_user_mr, but the rxe provider of rdma-core (up to 65.0) has no
// operation that calls it. This is so on the profile rxe, too.
TEST_F(Rxe612, DoesNotRegisterARegionAgain) {
  data = Allocate(4096);
  const Mr region(ibv_reg_mr(pd.get(), data.data, data.size, 0));
  ASSERT_TRUE(region);
  errno = 0;
  EXPECT_NE(ibv_rereg_mr(region.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                         IBV_ACCESS_REMOTE_READ),
            0);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(Rxe612, QueryTellsTheCurrentState) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  const auto current = [&] {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(ibv_query_qp(a.get(), &attr, IBV_QP_STATE | IBV_QP_CUR_STATE, &init), 0);
    return attr.cur_qp_state;
  };
  EXPECT_EQ(current(), IBV_QPS_RTS);
  ASSERT_EQ(ToError(a.get()), 0);
  EXPECT_EQ(current(), IBV_QPS_ERR);
}

TEST_F(Rxe612, CreatingAnSrqTellsTheDepthThatItHas) {
  ibv_srq_init_attr init{};
  init.attr = {10, 1, 0};
  const Srq srq(ibv_create_srq(pd.get(), &init));
  ASSERT_TRUE(srq);
  EXPECT_EQ(init.attr.max_wr, 15u);
}

TEST_F(Rxe612, AQpWithAnSrqTellsThatItTakesNoMoreReceives) {
  ibv_srq_init_attr init{};
  init.attr = {8, 1, 0};
  const Srq srq(ibv_create_srq(pd.get(), &init));
  ASSERT_NO_FATAL_FAILURE(Connect({}, nullptr, 64, srq.get()));
  ASSERT_EQ(ToError(b.get()), 0);
  EXPECT_TRUE(NextEventIs(IBV_EVENT_QP_LAST_WQE_REACHED));
  b.reset();
}

// ---- ATOMIC WRITE, which only the extended calls post

constexpr uint64_t kDeviceCapAtomicWrite = uint64_t{1} << 40;  // IB_UVERBS_DEVICE_ATOMIC_WRITE

class Rxe612Extended : public Rxe612 {
 protected:
  Qp MakeExtended(uint64_t operations, ibv_qp_type type = IBV_QPT_RC) {
    ibv_qp_init_attr_ex init{};
    init.send_cq = init.recv_cq = send_cq.get();
    init.cap = {8, 8, pieces, 0, 0};
    init.qp_type = type;
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.pd = pd.get();
    init.send_ops_flags = operations;
    errno = 0;
    return Qp(ibv_create_qp_ex(context.get(), &init));
  }
  void ConnectExtended(uint64_t operations, int access = kAllAccess) {
    send_cq = MakeCq(64);
    data = Allocate(4096);
    mr.reset(ibv_reg_mr(pd.get(), data.data, data.size, access));
    ASSERT_TRUE(mr);
    a = MakeExtended(operations);
    b = MakeExtended(operations);
    ASSERT_TRUE(a && b);
    ASSERT_EQ(Join(a.get(), b.get()), 0);
    ASSERT_EQ(Join(b.get(), a.get()), 0);
    ex = ibv_qp_to_qp_ex(a.get());
    ASSERT_NE(ex, nullptr);
  }
  void Begin(uint64_t wr_id) {
    ibv_wr_start(ex);
    ex->wr_id = wr_id;
    ex->wr_flags = IBV_SEND_SIGNALED;
  }
  uint64_t WordAt(size_t offset) const {
    uint64_t word = 0;
    memcpy(&word, data.data + offset, sizeof word);
    return word;
  }
  uint32_t pieces = 0;  // of a send. An ATOMIC WRITE has none
  ibv_qp_ex* ex = nullptr;
};

TEST_F(Rxe612Extended, TheDeviceHasAtomicWrite) {
  ibv_device_attr_ex attr{};
  ASSERT_EQ(ibv_query_device_ex(context.get(), nullptr, &attr), 0);
  EXPECT_NE(attr.device_cap_flags_ex & kDeviceCapAtomicWrite, 0u);
  EXPECT_EQ(attr.device_cap_flags_ex & UINT32_MAX, 0x01223c76u);
}

// The bytes are taken at once, and need no key.
TEST_F(Rxe612Extended, AnAtomicWriteWritesItsWord) {
  ASSERT_NO_FATAL_FAILURE(ConnectExtended(IBV_QP_EX_WITH_ATOMIC_WRITE));
  Begin(7);
  uint64_t word = 0x8877665544332211;
  ibv_wr_atomic_write(ex, mr->rkey, data.address() + 64, &word);
  word = 0;
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  const Completion done = PollOne(send_cq.get());
  ASSERT_TRUE(done.found);
  EXPECT_EQ(done.wc.status, IBV_WC_SUCCESS) << Describe(done);
  EXPECT_EQ(done.wc.opcode, IBV_WC_ATOMIC_WRITE);
  EXPECT_EQ(done.wc.wr_id, 7u);
  EXPECT_EQ(done.wc.byte_len, 8u);
  EXPECT_EQ(WordAt(64), 0x8877665544332211u);
  EXPECT_EQ(WordAt(56), 0u);
  EXPECT_EQ(WordAt(72), 0u);
}

TEST_F(Rxe612Extended, AListOfAtomicWritesIsExecutedInOrder) {
  ASSERT_NO_FATAL_FAILURE(ConnectExtended(IBV_QP_EX_WITH_ATOMIC_WRITE));
  ibv_wr_start(ex);
  for (uint64_t i = 1; i <= 8; ++i) {
    ex->wr_id = i;
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_atomic_write(ex, mr->rkey, data.address() + 8, &i);
  }
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  for (uint64_t i = 1; i <= 8; ++i) EXPECT_EQ(PollOne(send_cq.get()).wc.wr_id, i);
  EXPECT_EQ(WordAt(8), 8u);
}

TEST_F(Rxe612Extended, AMisalignedAtomicWriteIsAnInvalidRequest) {
  ASSERT_NO_FATAL_FAILURE(ConnectExtended(IBV_QP_EX_WITH_ATOMIC_WRITE));
  Begin(7);
  const uint64_t word = 1;
  ibv_wr_atomic_write(ex, mr->rkey, data.address() + 68, &word);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  EXPECT_EQ(PollOne(send_cq.get()).wc.status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(WordAt(68), 0u);
}

TEST_F(Rxe612Extended, AnAtomicWriteNeedsTheRightToWrite) {
  ASSERT_NO_FATAL_FAILURE(ConnectExtended(IBV_QP_EX_WITH_ATOMIC_WRITE,
                                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC));
  Begin(7);
  const uint64_t word = 1;
  ibv_wr_atomic_write(ex, mr->rkey, data.address() + 64, &word);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  EXPECT_EQ(PollOne(send_cq.get()).wc.status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Rxe612Extended, OnlyAReliableConnectionHasAtomicWrite) {
  send_cq = MakeCq(64);
  for (const ibv_qp_type type : {IBV_QPT_UC, IBV_QPT_UD}) {
    EXPECT_FALSE(MakeExtended(IBV_QP_EX_WITH_ATOMIC_WRITE, type));
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
}

// ibv_post_send has no operand for it: rdma-core's rxe provider posts it without address and key.
TEST_F(Rxe612Extended, TheOldCallPostsAnAtomicWriteWithoutAKey) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  ibv_sge piece{data.address(), 8, mr->lkey};
  ibv_send_wr wr{};
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_ATOMIC_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = data.address() + 64;
  wr.wr.rdma.rkey = mr->rkey;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(a.get(), &wr, &bad), 0);
  EXPECT_EQ(PollOne(send_cq.get()).wc.status, IBV_WC_REM_ACCESS_ERR);
}

// ---- FLUSH

constexpr int kFlushAccess = kAllAccess | newer::kAccessFlushGlobal;

class Rxe612Flush : public Rxe612Extended {
 protected:
  void Ready(int region_access = kFlushAccess, int qp_access = kFlushAccess) {
    pieces = 1;
    ConnectExtended(newer::kWithFlush | IBV_QP_EX_WITH_RDMA_WRITE, region_access);
    ibv_qp_attr attr{};
    attr.qp_access_flags = static_cast<unsigned>(qp_access);
    ASSERT_EQ(ibv_modify_qp(b.get(), &attr, IBV_QP_ACCESS_FLAGS), 0);
  }
  void Flush(size_t offset, size_t bytes, uint8_t type = newer::kFlushGlobal,
             uint8_t level = newer::kFlushRange) {
    reinterpret_cast<newer::QpEx*>(ex)->wr_flush(ex, mr->rkey, data.address() + offset, bytes, type,
                                                 level);
  }
  ibv_wc_status StatusOf(size_t offset, size_t bytes, uint8_t type = newer::kFlushGlobal,
                         uint8_t level = newer::kFlushRange) {
    Begin(7);
    Flush(offset, bytes, type, level);
    EXPECT_EQ(ibv_wr_complete(ex), 0);
    const Completion done = PollOne(send_cq.get());
    EXPECT_TRUE(done.found);
    return done.wc.status;
  }
};

TEST_F(Rxe612Flush, TheDeviceHasBothPlacements) {
  ibv_device_attr_ex attr{};
  ASSERT_EQ(ibv_query_device_ex(context.get(), nullptr, &attr), 0);
  EXPECT_NE(attr.device_cap_flags_ex & newer::kDeviceFlushGlobal, 0u);
  EXPECT_NE(attr.device_cap_flags_ex & newer::kDeviceFlushPersistent, 0u);
}

// A machine without persistent memory: rxe_mr_fill_pages_from_sgt.
TEST_F(Rxe612Flush, OrdinaryMemoryIsNotPersistent) {
  data = Allocate(4096);
  EXPECT_EQ(ErrnoOfRegion(newer::kAccessFlushGlobal), 0);
  EXPECT_EQ(ErrnoOfRegion(newer::kAccessFlushPersistent), EINVAL);
}

TEST_F(Rxe612Flush, CompletesAfterTheWriteBeforeIt) {
  ASSERT_NO_FATAL_FAILURE(Ready());
  memset(data.data, 0x5a, 1000);
  ibv_wr_start(ex);
  ex->wr_id = 1;
  ex->wr_flags = 0;
  ibv_wr_rdma_write(ex, mr->rkey, data.address() + 2000);
  ibv_wr_set_sge(ex, mr->lkey, data.address(), 1000);
  ex->wr_id = 2;
  ex->wr_flags = IBV_SEND_SIGNALED;
  Flush(2000, 1000);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  const Completion done = PollOne(send_cq.get());
  ASSERT_TRUE(done.found);
  EXPECT_EQ(done.wc.status, IBV_WC_SUCCESS) << Describe(done);
  EXPECT_EQ(int{done.wc.opcode}, newer::kWcFlush);
  EXPECT_EQ(done.wc.wr_id, 2u);
  EXPECT_EQ(done.wc.byte_len, 1000u);
  EXPECT_EQ(memcmp(data.data, data.data + 2000, 1000), 0);
}

TEST_F(Rxe612Flush, ARangeMustBeInsideItsRegionAndAWholeRegionHasNoRange) {
  ASSERT_NO_FATAL_FAILURE(Ready());
  EXPECT_EQ(StatusOf(0, 4096), IBV_WC_SUCCESS);
  EXPECT_EQ(StatusOf(0, 0), IBV_WC_SUCCESS);
  EXPECT_EQ(StatusOf(9000, 8, newer::kFlushGlobal, newer::kFlushRegion), IBV_WC_SUCCESS);
  EXPECT_EQ(StatusOf(4089, 8), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Rxe612Flush, NeedsItsRightOfTheRegion) {
  ASSERT_NO_FATAL_FAILURE(Ready(kAllAccess));
  EXPECT_EQ(StatusOf(0, 8), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Rxe612Flush, NeedsItsRightOfTheQp) {
  ASSERT_NO_FATAL_FAILURE(Ready(kFlushAccess, kAllAccess));
  EXPECT_EQ(StatusOf(0, 8), IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(Rxe612Flush, PersistenceNeedsARegionOfPersistentMemory) {
  ASSERT_NO_FATAL_FAILURE(Ready(kFlushAccess, kFlushAccess | newer::kAccessFlushPersistent));
  EXPECT_EQ(StatusOf(0, 8, newer::kFlushPersistent), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Rxe612Flush, OnlyAReliableConnectionHasIt) {
  send_cq = MakeCq(64);
  EXPECT_FALSE(MakeExtended(newer::kWithFlush, IBV_QPT_UC));
  EXPECT_EQ(errno, EOPNOTSUPP);
}

// ---- datagrams longer than the receive

class Rxe612Datagram : public Rxe612 {
 protected:
  void Ready(ibv_srq* srq = nullptr) {
    send_cq = MakeCq();
    receive_cq = MakeCq();
    data = Allocate(4096);
    mr.reset(ibv_reg_mr(pd.get(), data.data, data.size, kAllAccess));
    ASSERT_TRUE(mr);
    a = Make(IBV_QPT_UD, {8, 8, 1, 1, 0}, nullptr, send_cq.get());
    b = Make(IBV_QPT_UD, {8, srq == nullptr ? 8u : 0u, 1, 1, 0}, srq, receive_cq.get());
    ASSERT_TRUE(a && b);
    for (ibv_qp* qp : {a.get(), b.get()}) {
      ibv_qp_attr attr{};
      attr.port_num = 1;
      attr.qkey = kQkey;
      attr.qp_state = IBV_QPS_INIT;
      ASSERT_EQ(
          ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
          0);
      attr.qp_state = IBV_QPS_RTR;
      ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
      attr.qp_state = IBV_QPS_RTS;
      ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    }
    ibv_ah_attr path = PathToMyself();
    ah.reset(ibv_create_ah(pd.get(), &path));
    ASSERT_TRUE(ah);
  }
  int SendDatagram(uint32_t bytes) {
    ibv_sge piece{data.address(), bytes, mr->lkey};
    ibv_send_wr wr{};
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.wr.ud.ah = ah.get();
    wr.wr.ud.remote_qpn = b->qp_num;
    wr.wr.ud.remote_qkey = kQkey;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(a.get(), &wr, &bad);
  }
  // Room for a datagram of 100 bytes.
  ibv_recv_wr Receive(uint64_t wr_id, ibv_sge& piece) {
    piece = {data.address() + 1024, kRouteBytes + 100, mr->lkey};
    return {wr_id, nullptr, &piece, 1};
  }
  Ah ah;
};

TEST_F(Rxe612Datagram, IsDroppedAndTheReceiveStays) {
  ASSERT_NO_FATAL_FAILURE(Ready());
  ibv_sge piece{};
  ibv_recv_wr receive = Receive(7, piece);
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(b.get(), &receive, &bad), 0);
  ASSERT_EQ(SendDatagram(101), 0);
  ASSERT_EQ(SendDatagram(100), 0);
  const Completion received = PollOne(receive_cq.get());
  ASSERT_TRUE(received.found);
  EXPECT_EQ(received.wc.status, IBV_WC_SUCCESS) << Describe(received);
  EXPECT_EQ(received.wc.wr_id, 7u);
  EXPECT_EQ(received.wc.byte_len, kRouteBytes + 100);
  EXPECT_EQ(StateOf(b.get()), IBV_QPS_RTS);
}

TEST_F(Rxe612Datagram, FailsAReceiveOfAnSrqAndTheQpGoesOn) {
  ibv_srq_init_attr init{};
  init.attr = {8, 1, 0};
  const Srq srq(ibv_create_srq(pd.get(), &init));
  ASSERT_TRUE(srq);
  ASSERT_NO_FATAL_FAILURE(Ready(srq.get()));
  for (const uint64_t wr_id : {7, 8}) {
    ibv_sge piece{};
    ibv_recv_wr receive = Receive(wr_id, piece);
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_srq_recv(srq.get(), &receive, &bad), 0);
  }
  ASSERT_EQ(SendDatagram(101), 0);
  ASSERT_EQ(SendDatagram(100), 0);
  const Completion failed = PollOne(receive_cq.get());
  ASSERT_TRUE(failed.found);
  EXPECT_EQ(failed.wc.status, IBV_WC_REM_INV_REQ_ERR) << Describe(failed);
  EXPECT_EQ(failed.wc.wr_id, 7u);
  const Completion received = PollOne(receive_cq.get());
  ASSERT_TRUE(received.found);
  EXPECT_EQ(received.wc.status, IBV_WC_SUCCESS) << Describe(received);
  EXPECT_EQ(StateOf(b.get()), IBV_QPS_RTS);
  b.reset();
}

}  // namespace
}  // namespace rdma_contract
