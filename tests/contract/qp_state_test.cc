// The table of QP state transitions. Each pair of states is tested for each type with the required
// attributes, without each of them, and with an unknown one. Follows ib_modify_qp_is_ok.
#include <poll.h>

#include <cerrno>
#include <climits>
#include <cstring>

#include "tests/contract/support/command.h"
#include "tests/contract/support/objects.h"

namespace rdma_contract {
namespace {

constexpr int kAccessInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kUcRtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kRcRtr = kUcRtr | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRcRts =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

// Returns the attributes that a transition requires, -1 when the transition does not exist. No
// request enters SQE.
int Required(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) {
  const bool rc = type == IBV_QPT_RC, ud = type == IBV_QPT_UD;
  if (to == IBV_QPS_RESET) return 0;
  if (to == IBV_QPS_ERR) return from == IBV_QPS_RESET ? -1 : 0;
  switch (from) {
    case IBV_QPS_RESET:
      if (to != IBV_QPS_INIT) return -1;
      return ud ? IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY : kAccessInit;
    case IBV_QPS_INIT:
      if (to == IBV_QPS_INIT) return 0;
      if (to == IBV_QPS_RTR) return rc ? kRcRtr : ud ? 0 : kUcRtr;
      return -1;
    case IBV_QPS_RTR:
      if (to == IBV_QPS_RTS) return rc ? kRcRts : int{IBV_QP_SQ_PSN};
      return -1;
    case IBV_QPS_RTS:
      return to == IBV_QPS_RTS || to == IBV_QPS_SQD ? 0 : -1;
    case IBV_QPS_SQD:
      return to == IBV_QPS_RTS || to == IBV_QPS_SQD ? 0 : -1;
    default:
      return -1;
  }
}

constexpr ibv_qp_state kStates[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
                                    IBV_QPS_RTS,   IBV_QPS_SQD,  IBV_QPS_ERR};
constexpr const char* kNames[] = {"Reset", "Init", "Rtr", "Rts", "Sqd", "Sqe", "Err"};

std::string TypeName(ibv_qp_type type) {
  return type == IBV_QPT_RC ? "Rc" : type == IBV_QPT_UC ? "Uc" : "Ud";
}

class QpStateTest : public DeviceTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(DeviceTest::SetUp());
    cq = MakeCq(64);
    ASSERT_TRUE(cq);
  }
  ibv_qp_attr Attributes(ibv_qp_state to) {
    ibv_qp_attr attr{};
    attr.qp_state = to;
    attr.port_num = 1;
    attr.qp_access_flags = kAllAccess;
    attr.qkey = 0x11111111;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = 100;
    attr.max_dest_rd_atomic = attr.max_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.ah_attr = PathToMyself();
    return attr;
  }
  int Move(ibv_qp* qp, ibv_qp_state to, int mask) {
    ibv_qp_attr attr = Attributes(to);
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE | mask);
  }
  ibv_qp_state StateOf(ibv_qp* qp) {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
    EXPECT_EQ(qp->state, attr.qp_state) << "the library's own idea of the state";
    return attr.qp_state;
  }
  // SQD refuses changes until the QP is drained: sq_draining of ibv_query_qp(3).
  void WaitUntilDrained(ibv_qp* qp) {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    attr.sq_draining = 1;
    for (int waited_ms = 0; attr.sq_draining != 0 && waited_ms < kPatience_ms; ++waited_ms) {
      ASSERT_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
      if (attr.sq_draining != 0) poll(nullptr, 0, 1);
    }
    EXPECT_EQ(attr.sq_draining, 0);
  }
  // Creates a QP and moves it step by step to `state`.
  Qp In(ibv_qp_type type, ibv_qp_state state) {
    Qp qp = MakeQp(type, cq.get());
    if (!qp) return qp;
    ibv_qp_state at = IBV_QPS_RESET;
    const ibv_qp_state way[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD};
    for (const ibv_qp_state next : way) {
      if (state == at || (state == IBV_QPS_ERR && at == IBV_QPS_INIT)) break;
      EXPECT_EQ(Move(qp.get(), next, Required(type, at, next)), 0) << kNames[next];
      at = next;
    }
    if (at == IBV_QPS_SQD) WaitUntilDrained(qp.get());
    if (state == IBV_QPS_ERR) {
      EXPECT_EQ(Move(qp.get(), IBV_QPS_ERR, 0), 0);
    }
    return qp;
  }
  Cq cq;
};

using Transition = std::tuple<ibv_qp_type, ibv_qp_state, ibv_qp_state>;
class Transitions : public QpStateTest, public testing::WithParamInterface<Transition> {};

TEST_P(Transitions, HappensExactlyWhenTheTableHasIt) {
  const auto [type, from, to] = GetParam();
  const int required = Required(type, from, to);
  const Qp qp = In(type, from);
  ASSERT_TRUE(qp);
  if (required < 0) {
    EXPECT_EQ(Move(qp.get(), to, 0), EINVAL);
    EXPECT_EQ(StateOf(qp.get()), from);
    return;
  }
  for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
    if ((required & bit) == 0) continue;
    EXPECT_EQ(Move(qp.get(), to, required & ~bit), EINVAL) << "without attribute " << bit;
    EXPECT_EQ(StateOf(qp.get()), from);
  }
  // No transition of this table accepts IBV_QP_CAP, because capabilities cannot be changed.
  EXPECT_EQ(Move(qp.get(), to, required | IBV_QP_CAP), EINVAL);
  EXPECT_EQ(StateOf(qp.get()), from);
  EXPECT_EQ(Move(qp.get(), to, required), 0);
  EXPECT_EQ(StateOf(qp.get()), to);
}

INSTANTIATE_TEST_SUITE_P(All, Transitions,
                         testing::Combine(testing::Values(IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD),
                                          testing::ValuesIn(kStates), testing::ValuesIn(kStates)),
                         [](const auto& info) {
                           return TypeName(std::get<0>(info.param)) + "From" +
                                  kNames[std::get<1>(info.param)] + "To" +
                                  kNames[std::get<2>(info.param)];
                         });

TEST_F(QpStateTest, SqeIsNeverEnteredByRequest) {
  for (const ibv_qp_state from : kStates) {
    const Qp qp = In(IBV_QPT_RC, from);
    EXPECT_EQ(Move(qp.get(), IBV_QPS_SQE, 0), EINVAL) << kNames[from];
  }
}

TEST_F(QpStateTest, ChecksTheValuesOfInit) {
  const Qp qp = MakeQp(IBV_QPT_RC, cq.get());
  ibv_qp_attr attr = Attributes(IBV_QPS_INIT);
  attr.port_num = 2;
  EXPECT_EQ(ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE | kAccessInit), EINVAL);
  attr.port_num = 0;
  EXPECT_EQ(ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE | kAccessInit), EINVAL);
  attr.port_num = 1;
  EXPECT_EQ(ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE | kAccessInit | IBV_QP_QKEY), EINVAL);
  EXPECT_EQ(ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE | kAccessInit), 0);
}

TEST_F(QpStateTest, ChecksTheValuesOfRtr) {
  const auto result = [&](void (*spoil)(ibv_qp_attr&)) {
    const Qp qp = In(IBV_QPT_RC, IBV_QPS_INIT);
    ibv_qp_attr attr = Attributes(IBV_QPS_RTR);
    spoil(attr);
    return ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE | kRcRtr);
  };
  EXPECT_EQ(result([](ibv_qp_attr& attr) { attr.path_mtu = static_cast<ibv_mtu>(9); }), EINVAL);
  EXPECT_EQ(result([](ibv_qp_attr& attr) { attr.ah_attr.grh.sgid_index = 77; }), ENODATA);
  EXPECT_EQ(result([](ibv_qp_attr& attr) { attr.ah_attr.is_global = 0; }), EINVAL);
  EXPECT_EQ(result([](ibv_qp_attr& attr) { attr.ah_attr.port_num = 7; }), EINVAL);
  EXPECT_EQ(result([](ibv_qp_attr& attr) { attr.path_mtu = IBV_MTU_4096; }), 0);
  EXPECT_EQ(result([](ibv_qp_attr& attr) { attr.max_dest_rd_atomic = 200; }), 0);
  EXPECT_EQ(result([](ibv_qp_attr& attr) { attr.rq_psn = 0x1ffffff; }), 0);
}

TEST_F(QpStateTest, ChecksTheValuesOfRts) {
  const auto result = [&](void (*spoil)(ibv_qp_attr&)) {
    const Qp qp = In(IBV_QPT_RC, IBV_QPS_RTR);
    ibv_qp_attr attr = Attributes(IBV_QPS_RTS);
    spoil(attr);
    return ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE | kRcRts);
  };
  EXPECT_EQ(result([](ibv_qp_attr& attr) { attr.max_rd_atomic = 200; }), EINVAL);
  EXPECT_EQ(result([](ibv_qp_attr& attr) { attr.timeout = 40; }), EINVAL);
  EXPECT_EQ(result([](ibv_qp_attr& attr) { attr.retry_cnt = 9; }), 0);
  EXPECT_EQ(result([](ibv_qp_attr& attr) { attr.rnr_retry = 9; }), 0);
}

TEST_F(QpStateTest, ChangesAttributesWithoutChangingTheState) {
  const Qp qp = In(IBV_QPT_RC, IBV_QPS_RTS);
  ibv_qp_attr attr = Attributes(IBV_QPS_RTS);
  attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE;
  EXPECT_EQ(ibv_modify_qp(qp.get(), &attr, IBV_QP_ACCESS_FLAGS), 0);
  EXPECT_EQ(ibv_modify_qp(qp.get(), &attr, IBV_QP_MIN_RNR_TIMER), 0);
  EXPECT_EQ(ibv_modify_qp(qp.get(), &attr, IBV_QP_TIMEOUT), EINVAL);
  EXPECT_EQ(ibv_modify_qp(qp.get(), &attr, 0), 0);
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(qp.get(), &attr, IBV_QP_ACCESS_FLAGS, &init), 0);
  EXPECT_EQ(attr.qp_access_flags, unsigned{IBV_ACCESS_LOCAL_WRITE});
}

TEST_F(QpStateTest, AWrongCurrentStateIsRefused) {
  const Qp qp = In(IBV_QPT_RC, IBV_QPS_RTR);
  ibv_qp_attr attr = Attributes(IBV_QPS_RTS);
  attr.cur_qp_state = IBV_QPS_INIT;
  EXPECT_EQ(ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE | IBV_QP_CUR_STATE | kRcRts), EINVAL);
}

TEST_F(QpStateTest, QueryGivesBackWhatWasSet) {
  const Qp qp = In(IBV_QPT_RC, IBV_QPS_RTS);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(qp.get(), &attr, (1 << 21) - 1, &init), 0);
  EXPECT_EQ(attr.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(attr.dest_qp_num, 100u);
  EXPECT_EQ(attr.max_rd_atomic, 4);
  EXPECT_EQ(attr.max_dest_rd_atomic, 4);
  EXPECT_EQ(attr.min_rnr_timer, 1);
  EXPECT_EQ(attr.timeout, 14);
  EXPECT_EQ(attr.retry_cnt, 7);
  EXPECT_EQ(attr.rnr_retry, 7);
  EXPECT_EQ(attr.port_num, 1);
  EXPECT_EQ(attr.qp_access_flags & kAllAccess, unsigned{kAllAccess});
  EXPECT_EQ(attr.ah_attr.is_global, 1);
  EXPECT_EQ(memcmp(&attr.ah_attr.grh.dgid, PathToMyself().grh.dgid.raw, 16), 0);
  EXPECT_EQ(init.qp_type, IBV_QPT_RC);
  EXPECT_EQ(init.send_cq, cq.get());
}

// As measured on rxe: cur_qp_state is never set, and the address is global before one was set.
TEST_F(QpStateTest, QueryInInitTellsTheSmallestMtuAndAGlobalAddress) {
  const Qp qp = In(IBV_QPT_RC, IBV_QPS_INIT);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(qp.get(), &attr, (1 << 21) - 1, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_INIT);
  EXPECT_EQ(attr.cur_qp_state, 0);
  EXPECT_EQ(attr.path_mtu, IBV_MTU_256);
  EXPECT_EQ(attr.ah_attr.is_global, 1);
  EXPECT_EQ(attr.ah_attr.port_num, 0);
}

TEST_F(QpStateTest, DepthsRoundUpAndAreTold) {
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq.get();
  init.cap = {4, 16, 2, 2, 0};
  init.qp_type = IBV_QPT_RC;
  const Qp qp(ibv_create_qp(pd.get(), &init));
  ASSERT_TRUE(qp);
  EXPECT_GE(init.cap.max_send_wr, 4u);
  EXPECT_GE(init.cap.max_recv_wr, 16u);
  ibv_qp_attr attr{};
  ASSERT_EQ(ibv_query_qp(qp.get(), &attr, IBV_QP_CAP, &init), 0);
  EXPECT_EQ(attr.cap.max_send_wr, 7u);
  EXPECT_EQ(attr.cap.max_recv_wr, 31u);
}

TEST_F(QpStateTest, CreationRefusesWhatTheDeviceHasNot) {
  const auto fails = [&](ibv_qp_type type, ibv_qp_cap cap) {
    return !MakeQp(type, cq.get(), nullptr, cap);
  };
  EXPECT_TRUE(fails(IBV_QPT_RC, {1048577, 1, 1, 1, 0}));
  EXPECT_TRUE(fails(IBV_QPT_RC, {1, 1048577, 1, 1, 0}));
  EXPECT_TRUE(fails(IBV_QPT_RC, {1, 1, 33, 1, 0}));
  EXPECT_TRUE(fails(IBV_QPT_RC, {1, 1, 1, 33, 0}));
  EXPECT_TRUE(fails(IBV_QPT_RC, {1, 1, 1, 1, 1000}));
  EXPECT_FALSE(fails(IBV_QPT_RC, {1, 1, 32, 1, 512}));
  EXPECT_TRUE(fails(IBV_QPT_RAW_PACKET, {1, 1, 1, 1, 0}));
  EXPECT_TRUE(fails(IBV_QPT_XRC_SEND, {1, 1, 1, 1, 0}));
  EXPECT_TRUE(fails(static_cast<ibv_qp_type>(0), {1, 1, 1, 1, 0}));
}

class PostInState : public QpStateTest, public testing::WithParamInterface<ibv_qp_state> {};

TEST_P(PostInState, SendIsRefusedBeforeRts) {
  const Qp qp = In(IBV_QPT_RC, GetParam());
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(qp.get(), &wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);
}
INSTANTIATE_TEST_SUITE_P(All, PostInState,
                         testing::Values(IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR),
                         [](const auto& info) { return kNames[info.param]; });

TEST_F(QpStateTest, ReceivesAreRefusedInReset) {
  const Qp fresh = In(IBV_QPT_RC, IBV_QPS_RESET);
  ibv_recv_wr wr{1, nullptr, nullptr, 0};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(fresh.get(), &wr, &bad), EINVAL);
  ASSERT_EQ(Move(fresh.get(), IBV_QPS_INIT, Required(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT)), 0);
  EXPECT_EQ(ibv_post_recv(fresh.get(), &wr, &bad), 0);
  ASSERT_EQ(Move(fresh.get(), IBV_QPS_RESET, 0), 0);
  EXPECT_EQ(ibv_post_recv(fresh.get(), &wr, &bad), EINVAL) << "again in RESET";
}

TEST_F(QpStateTest, ARefusedPostSetsErrno) {
  const Qp qp = In(IBV_QPT_RC, IBV_QPS_INIT);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  ibv_send_wr* bad = nullptr;
  errno = 0;
  EXPECT_EQ(ibv_post_send(qp.get(), &wr, &bad), EINVAL);
  EXPECT_EQ(errno, EINVAL);
}

// rdma-core's rxe provider only returns the error (measured).
TEST_F(QpStateTest, ARefusedReceiveSetsErrno) {
  if (!OnTheEmulator()) GTEST_SKIP() << "rdma_rxe leaves errno alone";
  const Qp qp = In(IBV_QPT_RC, IBV_QPS_RESET);
  ibv_sge pieces[2] = {};
  ibv_recv_wr in_reset{1, nullptr, nullptr, 0};
  ibv_recv_wr too_long{2, nullptr, pieces, 2};  // the queue takes one piece
  ibv_recv_wr* bad = nullptr;
  errno = 0;
  EXPECT_EQ(ibv_post_recv(qp.get(), &in_reset, &bad), EINVAL);
  EXPECT_EQ(errno, EINVAL);
  ASSERT_EQ(Move(qp.get(), IBV_QPS_INIT, Required(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT)), 0);
  errno = 0;
  EXPECT_EQ(ibv_post_recv(qp.get(), &too_long, &bad), EINVAL);
  EXPECT_EQ(errno, EINVAL);
  int posted = 0;
  errno = 0;
  while (posted < 1000 && ibv_post_recv(qp.get(), &in_reset, &bad) == 0) ++posted;
  EXPECT_EQ(errno, ENOMEM);
}

constexpr int kTooManyPieces[] = {INT_MAX, 1 << 20, 1000, -1};

TEST_F(QpStateTest, ASendOfTooManyPiecesIsRefusedBeforeItsListIsRead) {
  if (!OnTheEmulator())
    GTEST_SKIP() << "rdma-core's rxe provider reads the list first, and crashes";
  const Qp qp = In(IBV_QPT_RC, IBV_QPS_RTS);
  for (const unsigned flags : {0u, unsigned{IBV_SEND_INLINE}}) {
    for (const int pieces : kTooManyPieces) {
      for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
        ibv_send_wr wr{};
        wr.num_sge = pieces;
        wr.opcode = opcode;
        wr.send_flags = flags;
        ibv_send_wr* bad = nullptr;
        EXPECT_EQ(ibv_post_send(qp.get(), &wr, &bad), EINVAL) << pieces << " of " << opcode;
        EXPECT_EQ(bad, &wr);
      }
    }
  }
  ibv_send_wr empty{};
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(qp.get(), &empty, &bad), 0) << "the next request is posted";
}

TEST_F(QpStateTest, AReceiveOfTooManyPiecesIsRefusedBeforeItsListIsRead) {
  const Qp qp = In(IBV_QPT_RC, IBV_QPS_INIT);
  ibv_recv_wr* bad = nullptr;
  for (const int pieces : kTooManyPieces) {
    ibv_recv_wr wr{1, nullptr, nullptr, pieces};
    EXPECT_EQ(ibv_post_recv(qp.get(), &wr, &bad), EINVAL) << pieces;
    EXPECT_EQ(bad, &wr);
  }
  ibv_recv_wr empty{2, nullptr, nullptr, 0};
  EXPECT_EQ(ibv_post_recv(qp.get(), &empty, &bad), 0) << "the next request is posted";
}

TEST_F(QpStateTest, PostStopsAtTheFirstBadRequestAndNamesIt) {
  const Qp qp = In(IBV_QPT_RC, IBV_QPS_INIT);
  ibv_sge pieces[2] = {};
  ibv_recv_wr second{2, nullptr, pieces, 2};  // the queue takes one piece
  ibv_recv_wr first{1, &second, pieces, 0};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(qp.get(), &first, &bad), EINVAL);
  EXPECT_EQ(bad, &second);
}

TEST_F(QpStateTest, AFullReceiveQueueSaysEnomem) {
  const Qp qp = In(IBV_QPT_RC, IBV_QPS_INIT);
  ibv_recv_wr wr{1, nullptr, nullptr, 0};
  ibv_recv_wr* bad = nullptr;
  int posted = 0, result = 0;
  while (posted < 1000 && (result = ibv_post_recv(qp.get(), &wr, &bad)) == 0) ++posted;
  EXPECT_EQ(result, ENOMEM);
  EXPECT_EQ(posted, 15);  // 8 asked for: 2^n - 1 usable
}

TEST_F(QpStateTest, DrainingTheSendQueueGivesAnEventWhenAskedFor) {
  const Qp qp = In(IBV_QPT_RC, IBV_QPS_RTS);
  ibv_qp_attr attr = Attributes(IBV_QPS_SQD);
  attr.en_sqd_async_notify = 1;
  ASSERT_EQ(ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
  ibv_async_event event{};
  ASSERT_EQ(ibv_get_async_event(context.get(), &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_SQ_DRAINED);
  EXPECT_EQ(event.element.qp, qp.get());
  ibv_ack_async_event(&event);
  EXPECT_EQ(Move(qp.get(), IBV_QPS_RTS, 0), 0);
}

class QueriedPsns : public QpStateTest, public testing::WithParamInterface<ibv_qp_type> {
 protected:
  static constexpr uint32_t kFirstThere = 0xfffffe, kFirstBack = 77;

  // Connects `qp`, whose first packet has the PSN `own`.
  void Connect(ibv_qp* qp, const ibv_qp* peer, uint32_t own, uint32_t others) {
    const ibv_qp_type type = GetParam();
    ibv_qp_state at = IBV_QPS_RESET;
    for (const ibv_qp_state next : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
      ibv_qp_attr attr = Attributes(next);
      attr.dest_qp_num = peer->qp_num;
      attr.sq_psn = own;
      attr.rq_psn = others;
      ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | Required(type, at, next)), 0);
      at = next;
    }
  }
  void SendAndReceive(ibv_qp* from, ibv_qp* to, uint32_t bytes) {
    ibv_sge sge{reinterpret_cast<uint64_t>(buffer), bytes, mr->lkey};
    ibv_sge space{reinterpret_cast<uint64_t>(buffer + 4096), 4096, mr->lkey};
    ibv_recv_wr receive{1, nullptr, &space, 1};
    ibv_recv_wr* bad_receive = nullptr;
    ASSERT_EQ(ibv_post_recv(to, &receive, &bad_receive), 0);
    ibv_send_wr send{};
    send.sg_list = &sge;
    send.num_sge = 1;
    send.opcode = IBV_WR_SEND;
    send.send_flags = IBV_SEND_SIGNALED;
    send.wr.ud = {ah.get(), to->qp_num, 0x11111111};
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(from, &send, &bad), 0);
    for (int found = 0, waited_ms = 0; found < 2 && waited_ms < kPatience_ms;) {
      ibv_wc wc{};
      const int polled = ibv_poll_cq(cq.get(), 1, &wc);
      ASSERT_TRUE(polled == 0 || wc.status == IBV_WC_SUCCESS) << wc.status;
      found += polled;
      if (polled == 0) waited_ms += poll(nullptr, 0, 1) + 1;
    }
  }
  void ExpectPsns(ibv_qp* qp, uint32_t own, uint32_t others) {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(ibv_query_qp(qp, &attr, IBV_QP_SQ_PSN | IBV_QP_RQ_PSN, &init), 0);
    EXPECT_EQ(attr.sq_psn, own & 0xffffff);
    EXPECT_EQ(attr.rq_psn, others & 0xffffff);
  }
  char buffer[8192] = {};
  Mr mr;
  Ah ah;
};

// rxe_qp_to_attr: a query tells the next PSN that is sent, and the next one that is awaited.
TEST_P(QueriedPsns, AreThoseOfTheNextPackets) {
  const bool is_ud = GetParam() == IBV_QPT_UD;
  mr.reset(ibv_reg_mr(pd.get(), buffer, sizeof buffer, kAllAccess));
  ibv_ah_attr path = PathToMyself();
  ah.reset(ibv_create_ah(pd.get(), &path));
  const Qp a = MakeQp(GetParam(), cq.get()), b = MakeQp(GetParam(), cq.get());
  ASSERT_TRUE(mr && ah && a && b);
  ASSERT_NO_FATAL_FAILURE(Connect(a.get(), b.get(), kFirstThere, kFirstBack));
  ASSERT_NO_FATAL_FAILURE(Connect(b.get(), a.get(), kFirstBack, kFirstThere));
  uint32_t sent = 0;
  for (const uint32_t bytes : {8u, 1024u, 1025u, 8u, 8u, 8u}) {
    if (is_ud && bytes > 1024) continue;
    ASSERT_NO_FATAL_FAILURE(SendAndReceive(a.get(), b.get(), bytes));
    sent += bytes > 1024 ? 2 : 1;
    ExpectPsns(a.get(), kFirstThere + sent, is_ud ? 0 : kFirstBack);
    ExpectPsns(b.get(), kFirstBack, kFirstThere + sent);
  }
}

INSTANTIATE_TEST_SUITE_P(All, QueriedPsns, testing::Values(IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD),
                         [](const auto& info) { return TypeName(info.param); });

}  // namespace
}  // namespace rdma_contract
