// Two machines in a program of one thread: their messages, and the effect of a crash, a pause or a
// lost network on the other machine.
#include <fcntl.h>

#include "tests/embedded/two_hosts.h"

namespace rdmaemu_test {
namespace {

using rdmaemu::Fault;
using std::chrono::milliseconds;

class HostsTest : public TwoHostsTest {
 protected:
  // No event arrives. In a program of one thread the wait then fails instead of blocking for ever.
  static void ExpectNoEvent(rdma_event_channel* channel) {
    rdma_cm_event* event = nullptr;
    EXPECT_EQ(rdma_get_cm_event(channel, &event), -1);
    EXPECT_EQ(errno, EDEADLK) << strerror(errno);
  }
  static bool HasCompletion(ibv_cq* cq) {
    ibv_wc completion;
    return ibv_poll_cq(cq, 1, &completion) == 1;
  }

  Pair pair{kAddressOfB, "b", "a"};
};

TEST_F(HostsTest, AreConnectedByTheirAddresses) {
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  ASSERT_EQ(pair.server.Receive(), 0);
  strcpy(pair.client.buffer.data(), "to the other machine");
  ASSERT_EQ(pair.client.Send(), 0);
  EXPECT_THAT(NextCompletion(pair.client.cq), CompletionIs(IBV_WC_SUCCESS, IBV_WC_SEND));
  EXPECT_THAT(NextCompletion(pair.server.cq), CompletionIs(IBV_WC_SUCCESS, IBV_WC_RECV));
  EXPECT_STREQ(pair.server.buffer.data(), "to the other machine");
  ASSERT_EQ(rdma_disconnect(pair.client.id), 0);
  EXPECT_THAT(NextEvent(pair.listener.channel), EventIs(RDMA_CM_EVENT_DISCONNECTED, 0));
}

TEST_F(HostsTest, ReadWriteAndCountInEachOthersMemory) {
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  alignas(8) std::array<uint64_t, 2> there = {40, 5}, here = {7, 0};
  const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                  IBV_ACCESS_REMOTE_ATOMIC;
  ibv_mr* remote = ibv_reg_mr(pair.server.id->pd, there.data(), sizeof there, all);
  ibv_mr* local = ibv_reg_mr(pair.client.id->pd, here.data(), sizeof here, all);
  ASSERT_TRUE(remote != nullptr && local != nullptr);
  const auto post = [&](ibv_wr_opcode opcode, const auto& fill) {
    ibv_sge piece{reinterpret_cast<uint64_t>(here.data()), 8, local->lkey};
    ibv_send_wr work{}, *bad;
    work.sg_list = &piece;
    work.num_sge = 1;
    work.opcode = opcode;
    work.send_flags = IBV_SEND_SIGNALED;
    work.wr.rdma = {reinterpret_cast<uint64_t>(there.data()), remote->rkey};
    fill(work);
    EXPECT_EQ(ibv_post_send(pair.client.id->qp, &work, &bad), 0);
    EXPECT_THAT(NextCompletion(pair.client.cq), CompletionIs(IBV_WC_SUCCESS));
  };
  const auto plain = [](ibv_send_wr&) {};
  post(IBV_WR_RDMA_WRITE, plain);
  EXPECT_EQ(there[0], 7u);
  post(IBV_WR_ATOMIC_FETCH_AND_ADD, [&](ibv_send_wr& work) {
    work.wr.atomic = {reinterpret_cast<uint64_t>(there.data()), 3, 0, remote->rkey};
  });
  EXPECT_EQ(here[0], 7u);
  EXPECT_EQ(there[0], 10u);
  post(IBV_WR_RDMA_READ, plain);
  EXPECT_EQ(here[0], 10u);
  ibv_dereg_mr(remote);
  ibv_dereg_mr(local);
}

TEST_F(HostsTest, EachHasItsOwnPortsAndDevices) {
  Pair other(kAddressOfA, "a", "b");  // the same port
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  ASSERT_NO_FATAL_FAILURE(other.Establish());
  EXPECT_NE(pair.client.id->verbs, pair.server.id->verbs);
  EXPECT_EQ(pair.client.id->verbs, other.server.id->verbs);
  EXPECT_NE(ibv_get_device_guid(pair.client.id->verbs->device),
            ibv_get_device_guid(pair.server.id->verbs->device));
  const auto devices = [] {
    int count = 0;
    ibv_context** list = rdma_get_devices(&count);
    const std::vector<ibv_context*> all(list, list + count);
    rdma_free_devices(list);
    return all;
  };
  EXPECT_EQ(devices(), std::vector<ibv_context*>{pair.client.id->verbs});
  On("b", [&] { EXPECT_EQ(devices(), std::vector<ibv_context*>{pair.server.id->verbs}); });
}

// An object belongs to the host on which it was created, whichever host the thread is on.
TEST_F(HostsTest, ObjectsStayWhereTheyWereMade) {
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
  ASSERT_NO_FATAL_FAILURE(pair.Resolve());
  ASSERT_EQ(pair.Connect(), 0);
  On("b", [&] { pair.Accept(); });
  EXPECT_THAT(NextEvent(pair.client.channel), EventIs(RDMA_CM_EVENT_ESTABLISHED, 0));
  // An id cannot move to the other host, as it cannot move to another process.
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_id(pair.client.channel, &id, nullptr, RDMA_PS_TCP), 0);
  EXPECT_EQ(rdma_migrate_id(id, pair.listener.channel), -1);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

// librdmacm creates an id's own channel on the id's host.
TEST_F(HostsTest, AnIdBecomesSynchronousOnItsOwnHost) {
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_id(pair.listener.channel, &id, nullptr, RDMA_PS_TCP), 0);
  ASSERT_EQ(rdma_migrate_id(id, nullptr), 0) << strerror(errno);
  sockaddr_in at = At(kAddressOfB, Pair::kPort);
  EXPECT_EQ(rdma_bind_addr(id, Generic(at)), 0) << strerror(errno);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

// After a power failure the peer gets no message. Only a sender detects it.
TEST_F(HostsTest, ACrashIsNoticedByRetriesAlone) {
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  host.Remove("b");
  ExpectNoEvent(pair.client.channel);
  ASSERT_EQ(pair.client.Send(), 0);
  EXPECT_THAT(NextCompletion(pair.client.cq), CompletionIs(IBV_WC_RETRY_EXC_ERR));
  ExpectNoEvent(pair.client.channel);
}

TEST_F(HostsTest, WhatWasOnACrashedHostAnswersEio) {
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  ibv_comp_channel* completions = ibv_create_comp_channel(pair.server.id->verbs);
  ASSERT_NE(completions, nullptr);
  ibv_context* context = pair.server.id->verbs;
  Fault crash("host = \"b\", at = \"packet.rc_send_only\", crash = true");
  ASSERT_EQ(pair.client.Send(), 0);
  ibv_wc completion;
  EXPECT_EQ(ibv_poll_cq(pair.server.cq, 1, &completion), -1);
  EXPECT_EQ(pair.server.Send(), EIO);
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(pair.listener.channel, &event), -1);
  EXPECT_EQ(errno, EIO);
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  EXPECT_EQ(ibv_get_cq_event(completions, &cq, &cq_context), -1);
  EXPECT_EQ(errno, EIO);
  ibv_async_event fatal;
  ASSERT_EQ(ibv_get_async_event(context, &fatal), 0);
  EXPECT_EQ(fatal.event_type, IBV_EVENT_DEVICE_FATAL);
  EXPECT_EQ(ibv_alloc_pd(context), nullptr);
  EXPECT_EQ(errno, EIO);
  On("b", [] { EXPECT_EQ(rdma_create_event_channel(), nullptr); });
  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(ibv_destroy_comp_channel(completions), 0);
  EXPECT_THAT(NextCompletion(pair.client.cq), CompletionIs(IBV_WC_RETRY_EXC_ERR));
}

// A test's objects can then be destroyed in any order.
TEST_F(HostsTest, WhatWasOnACrashedHostCanBeDestroyed) {
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  host.Remove("b");
  Side& server = pair.server;
  rdma_destroy_qp(server.id);
  EXPECT_EQ(ibv_dereg_mr(server.mr), 0);
  EXPECT_EQ(ibv_destroy_cq(server.cq), 0);
  EXPECT_EQ(rdma_destroy_id(server.id), 0);
  server.id = nullptr;
  server.mr = nullptr;
  server.cq = nullptr;
}

// After a restart the machine has no state of the connection.
TEST_F(HostsTest, AHostOfTheSameNameMayFollow) {
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  host.Remove("b");
  AddB();
  Pair again(kAddressOfB, "b", "a");
  ASSERT_NO_FATAL_FAILURE(again.Establish());
  ASSERT_EQ(pair.client.Send(), 0);
  EXPECT_THAT(NextCompletion(pair.client.cq), CompletionIs(IBV_WC_RETRY_EXC_ERR));
  ASSERT_EQ(again.server.Receive(), 0);
  ASSERT_EQ(again.client.Send(), 0);
  EXPECT_THAT(NextCompletion(again.client.cq), CompletionIs(IBV_WC_SUCCESS));
}

TEST_F(HostsTest, APartitionThatHealsLosesNothing) {
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  ASSERT_EQ(pair.server.Receive(), 0);
  {
    const Fault apart("host = \"a\", at = \"link\", remote = \"10.0.0.2\", partition = true");
    ASSERT_EQ(pair.client.Send(), 0);
    host.Advance(milliseconds(1));
    EXPECT_FALSE(HasCompletion(pair.server.cq));
    EXPECT_GT(apart.fired(), 0u);
  }
  EXPECT_THAT(NextCompletion(pair.client.cq), CompletionIs(IBV_WC_SUCCESS));
  EXPECT_THAT(NextCompletion(pair.server.cq), CompletionIs(IBV_WC_SUCCESS, IBV_WC_RECV));
}

TEST_F(HostsTest, APartitionOfOneWayLosesAnswers) {
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  ASSERT_EQ(pair.server.Receive(), 0);
  const Fault deaf(
      "host = \"a\", at = \"link\", remote = \"10.0.0.2\", direction = \"receive\", "
      "partition = true");
  ASSERT_EQ(pair.client.Send(), 0);
  EXPECT_THAT(NextCompletion(pair.server.cq), CompletionIs(IBV_WC_SUCCESS, IBV_WC_RECV));
  EXPECT_THAT(NextCompletion(pair.client.cq), CompletionIs(IBV_WC_RETRY_EXC_ERR));
}

TEST_F(HostsTest, APartitionEndsInUnreachable) {
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
  ASSERT_NO_FATAL_FAILURE(pair.Resolve());
  const Fault apart("host = \"b\", at = \"link\", partition = true");
  ASSERT_EQ(pair.Connect(), 0);
  EXPECT_THAT(NextEvent(pair.client.channel), EventIs(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT));
}

// Calls on a paused host block. No other thread runs meanwhile in a program of one thread.
TEST_F(HostsTest, CallsOnAPausedHostWait) {
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  const auto began = host.now();
  const Fault pause("host = \"b\", at = \"time\", at_ms = 1, pause_ms = 50");
  host.Advance(milliseconds(2));
  EXPECT_EQ(pause.fired(), 1u);
  EXPECT_EQ(host.now() - began, milliseconds(2));
  ibv_pd* pd = ibv_alloc_pd(pair.server.id->verbs);
  EXPECT_NE(pd, nullptr);
  EXPECT_EQ(host.now() - began, milliseconds(51));
  ibv_dealloc_pd(pd);
}

// The other host continues.
TEST_F(HostsTest, APausedHostGetsItsPacketsLater) {
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  ASSERT_EQ(pair.server.Receive(), 0);
  const auto began = host.now();
  ASSERT_EQ(rdmaemu_rule_add("host = \"b\", at = \"time\", at_ms = 1, pause_ms = 3", nullptr, 0),
            0);
  host.Advance(milliseconds(2));
  ASSERT_EQ(pair.client.Send(), 0);
  ibv_pd* pd = ibv_alloc_pd(pair.client.id->verbs);
  EXPECT_NE(pd, nullptr);
  ibv_dealloc_pd(pd);
  EXPECT_EQ(host.now() - began, milliseconds(2));
  EXPECT_THAT(NextCompletion(pair.client.cq), CompletionIs(IBV_WC_SUCCESS));
  EXPECT_GE(host.now() - began, milliseconds(4));
}

// An RNIC's rdma_connect blocks until TCP has connected.
TEST_F(HostsTest, RnicsConnectFromWhicheverHostTheThreadIsOn) {
  AddHost("c", {{"siw0", "siw", "10.0.0.3"}});
  AddHost("d", {{"siw0", "siw", "10.0.0.4"}});
  Pair rnics("10.0.0.4", "d", "c");
  ASSERT_NO_FATAL_FAILURE(rnics.Establish());
  ASSERT_EQ(rnics.server.Receive(), 0);
  ASSERT_EQ(rnics.client.Send(), 0);
  EXPECT_THAT(NextCompletion(rnics.client.cq), CompletionIs(IBV_WC_SUCCESS));
  EXPECT_THAT(NextCompletion(rnics.server.cq), CompletionIs(IBV_WC_SUCCESS, IBV_WC_RECV));
}

TEST_F(HostsTest, RulesOfAllHostsAreOneList) {
  const Fault first("at = \"cm.req\", reject = 28"),
      second("host = \"b\", at = \"cm.req\", reject = 24");
  EXPECT_EQ(first.name(), "rule 1");
  EXPECT_EQ(second.name(), "rule 2");
  EXPECT_EQ(rdmaemu_rules(nullptr, 0), 2);
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
  ASSERT_NO_FATAL_FAILURE(pair.Resolve());
  ASSERT_EQ(pair.Connect(), 0);
  EXPECT_THAT(NextEvent(pair.client.channel), EventIs(RDMA_CM_EVENT_REJECTED, 24));
  EXPECT_EQ(first.fired(), 0u);
  EXPECT_EQ(second.fired(), 1u);
  EXPECT_EQ(rdmaemu_rule_add("name = \"rule 2\", at = \"cm.req\", drop = true", nullptr, 0),
            -EINVAL);
  EXPECT_THAT(rdmaemu_last_error(), testing::HasSubstr("called \"rule 2\" already"));
  EXPECT_EQ(rdmaemu_rule_add("host = \"c\", at = \"cm.req\", drop = true", nullptr, 0), -EINVAL);
  EXPECT_THAT(rdmaemu_last_error(), testing::HasSubstr("for host \"c\""));
}

// The rule that ended the host has fired, so the wait for the rule succeeds.
TEST_F(HostsTest, AWaitForTheRuleThatCrashedAHostEnds) {
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  const char* const crash =
      "name = \"end\", host = \"b\", at = \"packet.rc_send_only\", crash = true";
  ASSERT_EQ(rdmaemu_rule_add(crash, nullptr, 0), 0);
  const Fault never("name = \"never\", host = \"b\", at = \"cm.rej\", drop = true");
  EXPECT_EQ(rdmaemu_rule_wait("end", 1, 10'000), -EDEADLK);
  ASSERT_EQ(pair.client.Send(), 0);
  EXPECT_EQ(rdmaemu_rule_wait("end", 1, 10'000), 0) << rdmaemu_last_error();
  EXPECT_EQ(rdmaemu_rule_wait("end", 2, 10'000), -ENOENT);
  EXPECT_EQ(rdmaemu_rule_wait("never", 0, 10'000), -ENOENT);
  // A later host of the same name has no such rule.
  AddB();
  EXPECT_EQ(rdmaemu_rule_wait("end", 1, 10'000), -ENOENT);
}

TEST_F(HostsTest, ARuleOfACrashedHostEndsWhenItIsRemovedOrFollowed) {
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  const Fault witness("name = \"came\", host = \"b\", at = \"packet.rc_send_only\""),
      crash("name = \"end\", host = \"b\", at = \"packet.rc_send_only\", crash = true");
  ASSERT_EQ(pair.client.Send(), 0);
  EXPECT_EQ(rdmaemu_rule_wait("came", 1, 10'000), 0) << rdmaemu_last_error();
  EXPECT_EQ(rdmaemu_rule_remove("came"), -ENOENT);
  EXPECT_EQ(rdmaemu_rule_wait("came", 1, 10'000), -ENOENT);
  ASSERT_EQ(rdmaemu_rule_add("name = \"end\", at = \"cm.rej\", drop = true", nullptr, 0), 0);
  EXPECT_EQ(rdmaemu_rule_wait("end", 1, 10'000), -EDEADLK);
}

TEST_F(HostsTest, TheTimelineHasBothSides) {
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  const std::string timeline = rdmaemu::Timeline();
  const size_t sent = timeline.find("  a "), received = timeline.find("  b ", sent);
  EXPECT_NE(sent, std::string::npos);
  EXPECT_NE(received, std::string::npos) << timeline;
}

}  // namespace
}  // namespace rdmaemu_test
