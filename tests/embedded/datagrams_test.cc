// UD between two machines of one program: to one machine, and to a multicast group.
#include "tests/embedded/two_hosts.h"

namespace rdmaemu_test {
namespace {

constexpr uint32_t kQkey = RDMA_UDP_QKEY;
constexpr size_t kGrhBytes = 40;  // before a received datagram (ibv_create_ah_from_wc(3))

// A UD queue pair on an id of one host.
struct Corner {
  explicit Corner(const char* host, const char* address) : side(host) {
    sockaddr_in at = At(address, 0);
    EXPECT_EQ(rdma_create_id(side.channel, &side.id, nullptr, RDMA_PS_UDP), 0);
    EXPECT_EQ(rdma_bind_addr(side.id, Generic(at)), 0) << strerror(errno);
    side.cq = ibv_create_cq(side.id->verbs, 16, nullptr, nullptr, 0);
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = side.cq;
    attributes.cap = {8, 8, 1, 1, 0};
    attributes.qp_type = IBV_QPT_UD;
    EXPECT_EQ(rdma_create_qp(side.id, nullptr, &attributes), 0) << strerror(errno);
    const int access = IBV_ACCESS_LOCAL_WRITE;
    side.mr = ibv_reg_mr(side.id->pd, side.buffer.data(), side.buffer.size(), access);
    EXPECT_NE(side.mr, nullptr);
  }
  // 64 bytes of payload after the space for a GRH.
  void Receive() {
    ibv_sge piece{reinterpret_cast<uint64_t>(side.buffer.data()), kGrhBytes + 64, side.mr->lkey};
    ibv_recv_wr work{}, *bad;
    work.sg_list = &piece;
    work.num_sge = 1;
    EXPECT_EQ(ibv_post_recv(side.id->qp, &work, &bad), 0);
  }
  void Send(const char* text, ibv_ah* to, uint32_t qpn) {
    strcpy(side.buffer.data(), text);
    ibv_sge piece{reinterpret_cast<uint64_t>(side.buffer.data()), 64, side.mr->lkey};
    ibv_send_wr work{}, *bad;
    work.sg_list = &piece;
    work.num_sge = 1;
    work.opcode = IBV_WR_SEND;
    work.send_flags = IBV_SEND_SIGNALED;
    work.wr.ud = {to, qpn, kQkey};
    EXPECT_EQ(ibv_post_send(side.id->qp, &work, &bad), 0);
    EXPECT_THAT(NextCompletion(side.cq), CompletionIs(IBV_WC_SUCCESS, IBV_WC_SEND));
  }
  std::string Received() {
    EXPECT_THAT(NextCompletion(side.cq), CompletionIs(IBV_WC_SUCCESS, IBV_WC_RECV));
    return side.buffer.data() + kGrhBytes;
  }
  // Joins the group. The caller owns the returned address handle of the group.
  ibv_ah* Join(const char* group) {
    sockaddr_in at = At(group, 0);
    EXPECT_EQ(rdma_join_multicast(side.id, Generic(at), nullptr), 0) << strerror(errno);
    const Event joined = NextEvent(side.channel);
    EXPECT_THAT(joined, EventIs(RDMA_CM_EVENT_MULTICAST_JOIN, 0));
    if (!joined) return nullptr;
    ibv_ah_attr attributes = joined->param.ud.ah_attr;
    return ibv_create_ah(side.id->pd, &attributes);
  }

  Side side;
};

class DatagramsTest : public TwoHostsTest {
 protected:
  Corner a{"a", kAddressOfA}, b{"b", kAddressOfB};
};

TEST_F(DatagramsTest, OneGoesToTheOtherMachine) {
  b.Receive();
  ibv_ah_attr attributes{};
  attributes.is_global = 1;
  attributes.port_num = 1;
  attributes.grh.hop_limit = 64;
  attributes.grh.sgid_index = 1;
  ASSERT_EQ(ibv_query_gid(b.side.id->verbs, 1, 1, &attributes.grh.dgid), 0);
  ibv_ah* to = ibv_create_ah(a.side.id->pd, &attributes);
  ASSERT_NE(to, nullptr) << strerror(errno);
  a.Send("to you alone", to, b.side.id->qp->qp_num);
  EXPECT_EQ(b.Received(), "to you alone");
  ibv_destroy_ah(to);
}

TEST_F(DatagramsTest, AGroupHasMembersOnBothMachines) {
  b.Receive();
  ibv_ah* from_b = b.Join("239.1.1.1");
  ibv_ah* from_a = a.Join("239.1.1.1");
  ASSERT_TRUE(from_a != nullptr && from_b != nullptr);
  constexpr uint32_t kMulticastQpn = 0xffffff;
  a.Send("to all", from_a, kMulticastQpn);
  EXPECT_EQ(b.Received(), "to all");
  // A member that has left gets no datagram.
  b.Receive();
  sockaddr_in group = At("239.1.1.1", 0);
  ASSERT_EQ(rdma_leave_multicast(b.side.id, Generic(group)), 0) << strerror(errno);
  a.Send("to the rest", from_a, kMulticastQpn);
  host.RunUntilIdle();
  ibv_wc completion;
  EXPECT_EQ(ibv_poll_cq(b.side.cq, 1, &completion), 0);
  // An attached queue pair cannot be destroyed.
  EXPECT_EQ(rdma_leave_multicast(a.side.id, Generic(group)), 0) << strerror(errno);
  ibv_destroy_ah(from_a);
  ibv_destroy_ah(from_b);
}

}  // namespace
}  // namespace rdmaemu_test
