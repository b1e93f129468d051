// Objects belong to the process that created them and to processes forked from it afterwards.
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "emulator/host/testing/world.h"

namespace rdmaemu {
namespace {

using testing::Client;
using testing::kAllAccess;
using testing::Verb;
using testing::World;

class Children : public ::testing::Test {
 protected:
  bool IsThere(Client& client, uint32_t context) {
    QueryDeviceOut out{};
    return client.Call(CallOp::kQueryDevice, HandleIn{context, 0}, out) == 0;
  }
  uint32_t Open(Client& client) {
    OpenDeviceOut out{};
    EXPECT_EQ(client.Call(CallOp::kOpenDevice, OpenDeviceIn{0, 0}, out), 0);
    return out.context;
  }
  uint32_t Alloc(Client& client, uint32_t context) {
    HandleOut out{};
    EXPECT_EQ(client.Call(CallOp::kAllocPd, AllocPdIn{context, 0}, out), 0);
    return out.handle;
  }

  World world;
  Host& host = world.AddHost("a", "127.0.1.1");
  Client parent{world, host};
};

TEST_F(Children, WhatAChildMadeEndsWithIt) {
  const uint32_t own = Open(parent);
  const std::unique_ptr<Client> child = parent.Fork();
  const uint32_t opened = Open(*child);
  CmChannelOut channel{};
  ASSERT_EQ(child->Call(CallOp::kCmCreateChannel, CmCreateChannelIn{}, channel), 0);
  Verb verb(*child);
  verb.CreateQp(IBV_QPT_RC);
  child->Kill();
  EXPECT_FALSE(IsThere(parent, opened));
  EXPECT_TRUE(IsThere(parent, own));
  const auto status = nlohmann::json::parse(host.StatusJson());
  EXPECT_EQ(status["groups"][0]["qps"], 0);
  EXPECT_EQ(status["groups"][0]["contexts"], 1);
  EXPECT_EQ(world.counters.live(), 1u);
}

TEST_F(Children, WhatAChildMadeOnItsParentsContextEndsWithTheChild) {
  Verb verb(parent);
  const std::unique_ptr<Client> child = parent.Fork();
  HandleOut pd{};
  ASSERT_EQ(child->Call(CallOp::kAllocPd, AllocPdIn{verb.context, 0}, pd), 0);
  CqOut cq{};
  ASSERT_EQ(child->Call(CallOp::kCreateCq, CreateCqIn{verb.context, 0, 4, 0, 1}, cq), 0);
  child->Kill();
  EXPECT_NE(parent.Call(CallOp::kDeallocPd, HandleIn{pd.handle, 0}), 0);
  DestroyCqOut destroyed{};
  EXPECT_NE(parent.Call(CallOp::kDestroyCq, HandleIn{cq.handle, 0}, destroyed), 0);
  EXPECT_EQ(parent.Call(CallOp::kDeallocPd, HandleIn{verb.pd, 0}), 0);
}

TEST_F(Children, AChildThatHasNotConnectedKeepsWhatItInherited) {
  const uint32_t before = Open(parent);
  const uint32_t pd = Alloc(parent, before);
  const uint32_t fork = parent.CountFork();
  const uint32_t after = Open(parent);
  parent.End();
  const std::unique_ptr<Client> child = parent.Forked(fork);
  EXPECT_TRUE(IsThere(*child, before));
  EXPECT_FALSE(IsThere(*child, after)) << "it was opened after the fork";
  host.Detach(world.now, parent.process);  // the child has closed its copy of the connection
  EXPECT_EQ(child->Call(CallOp::kDeallocPd, HandleIn{pd, 0}), 0);
  child->Kill();
  EXPECT_EQ(world.counters.live(), 0u);
}

TEST_F(Children, WithoutAForkNothingOutlivesTheProcess) {
  Open(parent);
  parent.End();
  EXPECT_EQ(world.counters.live(), 0u);
}

TEST_F(Children, AGrandchildKeepsWhatItsAncestorsHad) {
  const uint32_t first = Open(parent);
  std::unique_ptr<Client> child = parent.Fork();
  const uint32_t second = Open(*child);
  const std::unique_ptr<Client> grandchild = child->Fork();
  const uint32_t third = Open(*child);
  parent.Kill();
  child->Kill();
  EXPECT_TRUE(IsThere(*grandchild, first));
  EXPECT_TRUE(IsThere(*grandchild, second));
  EXPECT_FALSE(IsThere(*grandchild, third));
}

TEST_F(Children, AParentOfAnotherGroupIsRefused) {
  Client other(world, host);
  std::copy(std::begin(other.hello.group_token), std::end(other.hello.group_token),
            parent.hello.group_token);
  EXPECT_THROW(parent.Fork(), std::runtime_error);
}

// The memory that a peer's WRITE reaches after the process that registered it has ended.
class ChildrenMemory : public Children {
 protected:
  void SetUp() override {
    Host& other = world.AddHost("b", "127.0.1.2");
    // Shifts the host's process numbers, because the memory distinguishes processes only by number.
    for (int i = 0; i < 9; i++) (void)other.Attach(world.now, {1, "another"});
    peer = std::make_unique<Client>(world, other);
    far = std::make_unique<Verb>(*peer);
    near = std::make_unique<Verb>(parent);
    to = near->CreateQp(IBV_QPT_RC);
    from = far->CreateQp(IBV_QPT_RC);
    near->ConnectRc(to, "127.0.1.2", from.made.qpn);
    far->ConnectRc(from, "127.0.1.1", to.made.qpn);
    source = far->Register(bytes.data(), 64, kAllAccess);
  }
  // Returns the status of a WRITE to the region, -1 when nothing completes within `limit`.
  int Write(const MrOut& region, Duration limit = std::chrono::seconds(60)) {
    far->PostSend(from, 1, IBV_WR_RDMA_WRITE, bytes.data(), 64, source.lkey,
                  [&](testing::PlainSend& wqe) {
                    wqe.wr.wr.rdma.remote_addr = reinterpret_cast<uintptr_t>(&bytes[64]);
                    wqe.wr.wr.rdma.rkey = region.rkey;
                    wqe.wr.send_flags = IBV_SEND_SIGNALED;
                  });
    return Completed(limit);
  }
  int Completed(Duration limit) {
    ib_uverbs_wc wc{};
    return world.RunUntil([&] { return far->Poll(wc); }, limit) ? static_cast<int>(wc.status) : -1;
  }

  std::array<char, 128> bytes{};
  std::unique_ptr<Client> peer;
  std::unique_ptr<Verb> near, far;
  Verb::Qp to, from;
  MrOut source{};
};

TEST_F(ChildrenMemory, AChildStandsInForARegionThatWasThereBeforeTheFork) {
  const MrOut region = near->Register(&bytes[64], 64, kAllAccess);
  const std::unique_ptr<Client> child = parent.Fork();
  parent.Kill();
  EXPECT_EQ(Write(region), IBV_WC_SUCCESS);
}

TEST_F(ChildrenMemory, AChildDoesNotStandInForARegionOfLaterDays) {
  const std::unique_ptr<Client> child = parent.Fork();
  const MrOut region = near->Register(&bytes[64], 64, kAllAccess);
  parent.Kill();
  EXPECT_EQ(Write(region), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(ChildrenMemory, AParentDoesNotStandInForItsChild) {
  const std::unique_ptr<Client> child = parent.Fork();
  MrOut region{};
  ASSERT_EQ(child->Call(CallOp::kRegMr,
                        RegMrIn{near->pd, kAllAccess, reinterpret_cast<uintptr_t>(&bytes[64]), 64,
                                reinterpret_cast<uintptr_t>(&bytes[64])},
                        region),
            0);
  child->Kill();
  EXPECT_EQ(Write(region), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(ChildrenMemory, AWriteWaitsForTheChildThatInheritedTheRegion) {
  const MrOut region = near->Register(&bytes[64], 64, kAllAccess);
  const uint32_t fork = parent.CountFork();
  parent.End();
  bytes[0] = 'x';
  EXPECT_EQ(Write(region, std::chrono::milliseconds(1)), -1);
  const std::unique_ptr<Client> child = parent.Forked(fork);
  EXPECT_EQ(Completed(std::chrono::seconds(60)), IBV_WC_SUCCESS);
  EXPECT_EQ(bytes[64], 'x');
}

TEST_F(ChildrenMemory, AWriteFailsWhenTheChildThatInheritedTheRegionEnds) {
  const MrOut region = near->Register(&bytes[64], 64, kAllAccess);
  parent.CountFork();
  parent.End();
  host.Detach(world.now, parent.process);
  EXPECT_EQ(Write(region), IBV_WC_RETRY_EXC_ERR);
}

}  // namespace
}  // namespace rdmaemu
