// The profile mlx5-ib: connections of RDMA CM within a subnet have paths with LIDs, and their QPs
// and address handles have no GRH (ib_init_ah_attr_from_path of the kernel).
#include <gtest/gtest.h>

#include "tests/contract/support/direct.h"
#include "tests/contract/support/objects.h"

namespace rdma_contract {
namespace {

// The low 16 bits of an IPv4 address.
uint16_t LidOf(const std::string& address) {
  const ibv_gid gid = GidOf(address);
  return static_cast<uint16_t>(gid.raw[14] << 8 | gid.raw[15]);
}

class LidConnection : public ConnectedTest {
 protected:
  const uint16_t lid = LidOf(here);  // both ends are on one device
  void ExpectByLid(const ibv_ah_attr& path) const {
    EXPECT_EQ(path.is_global, 0);
    EXPECT_EQ(path.dlid, lid);
    EXPECT_EQ(path.port_num, 1);
  }
  void ExpectLids(const rdma_cm_id* id) const {
    ASSERT_EQ(id->route.num_paths, 1);
    const ibv_sa_path_rec& path = id->route.path_rec[0];
    EXPECT_EQ(ntohs(path.slid), lid);
    EXPECT_EQ(ntohs(path.dlid), lid);
    EXPECT_LE(path.hop_limit, 1);
  }
};

TEST_F(LidConnection, ItsPathsHaveTheLidsOfBothEnds) {
  Establish();
  ExpectLids(active.get());
  ExpectLids(passive.get());
}

TEST_F(LidConnection, ItsQueuePairsSendByLid) {
  Establish();
  for (const rdma_cm_id* const id : {active.get(), passive.get()}) {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(ibv_query_qp(id->qp, &attr, IBV_QP_AV, &init), 0);
    ExpectByLid(attr.ah_attr);
  }
}

TEST_F(LidConnection, TheAttributesForAProgramsOwnQueuePairAreByLid) {
  listener = Listener(passive_channel.get());
  active = Requesting(listener.get());
  passive = NextRequest(passive_channel.get());
  ASSERT_TRUE(passive);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  int mask = 0;
  ASSERT_EQ(rdma_init_qp_attr(passive.get(), &attr, &mask), 0);
  EXPECT_NE(mask & IBV_QP_AV, 0);
  ExpectByLid(attr.ah_attr);
}

TEST_F(LidConnection, ADatagramsAddressIsALid) {
  listener = Listener(passive_channel.get(), RDMA_PS_UDP);
  active = Requesting(listener.get());
  passive = NextRequest(passive_channel.get());
  ASSERT_TRUE(passive);
  ASSERT_EQ(MakeQueues(passive.get()), 0);
  rdma_conn_param accepted{};
  accepted.qp_num = passive->qp->qp_num;
  ASSERT_EQ(rdma_accept(passive.get(), &accepted), 0);
  const CmEvent established = Expect(channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  ASSERT_TRUE(established);
  ExpectByLid(established->param.ud.ah_attr);
  ibv_ah_attr address = established->param.ud.ah_attr;
  const Ah ah(ibv_create_ah(active->pd, &address));
  EXPECT_TRUE(ah);
}

}  // namespace
}  // namespace rdma_contract
