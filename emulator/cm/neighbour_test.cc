// Tests addresses without an answering neighbour (process_one_req of the kernel's addr.c; scenario
// arpfail).
#include "emulator/cm/channel.h"
#include "emulator/cm/network_for_test.h"

namespace rdmaemu::cm {
namespace {

constexpr const char* kSilent = "10.99.0.77";

class Neighbour : public CmTest {
 protected:
  Status Resolve(uint32_t id, const char* destination, uint32_t timeout_ms) {
    rdma_ucm_resolve_addr in = {};
    in.id = id;
    in.timeout_ms = timeout_ms;
    Program::Address(in.dst_addr, in.dst_size, destination, 1);
    const int error = client.Errno(RDMA_USER_CM_CMD_RESOLVE_ADDR, in);
    if (error != 0) return Fail(error);
    return {};
  }
};

TEST_F(Neighbour, ASilentOneIsAnErrorWhenItsTimeIsUpAndNotBefore) {
  const uint32_t id = client.Create();
  const Time begun = net.now;
  ASSERT_TRUE(Resolve(id, kSilent, 1000));
  net.RunUntil(begun + 999ms);
  client.ExpectNothing();
  net.RunUntil(begun + 1000ms);
  client.Expect(EventType::kAddrError, -ETIMEDOUT);
}

TEST_F(Neighbour, WhileItIsWaitedForTheIdDoesNothingElse) {
  const uint32_t id = client.Create();
  ASSERT_TRUE(Resolve(id, kSilent, 1000));
  EXPECT_EQ(Resolve(id, "10.0.0.2", 1000).error().code, EINVAL);
  EXPECT_EQ(client.Bind(id, "10.0.0.1", 1), EINVAL);
  EXPECT_EQ(client.Listen(id), EINVAL);
}

TEST_F(Neighbour, AnIdTriesAgain) {
  const uint32_t id = client.Create();
  ASSERT_TRUE(Resolve(id, kSilent, 100));
  net.RunUntil(net.now + 1s);
  client.Expect(EventType::kAddrError, -ETIMEDOUT);
  ASSERT_TRUE(Resolve(id, "10.0.0.2", 100));
  client.Expect(EventType::kAddrResolved);
}

TEST_F(Neighbour, TheFailuresThatAProgramNeverFetchesAreCountedWhenTheChannelIsFull) {
  constexpr size_t kIds = 4096, kTries = Channels::kMaxEventsPerChannel / kIds;
  std::vector<uint32_t> ids(kIds);
  for (uint32_t& id : ids) id = client.Create();
  for (size_t i = 0; i < kTries; i++) {
    for (const uint32_t id : ids) ASSERT_TRUE(Resolve(id, kSilent, 1));
    net.Run(2ms);
  }
  EXPECT_EQ(client_node.cm.statistics().dropped_channel_full, 0u);
  ASSERT_TRUE(Resolve(ids[0], kSilent, 1));
  net.Run(2ms);
  EXPECT_EQ(client_node.cm.statistics().dropped_channel_full, 1u);
}

TEST_F(Neighbour, AnIdThatGoesWaitsForNobody) {
  const uint32_t id = client.Create();
  ASSERT_TRUE(Resolve(id, kSilent, 100));
  ASSERT_EQ(client.Destroy(id), 0);
  EXPECT_FALSE(client_node.cm.NextDeadline());
  net.RunUntil(net.now + 1s);
  client.ExpectNothing();
}

}  // namespace
}  // namespace rdmaemu::cm
