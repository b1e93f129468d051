// The replies that a thread's announced calls take, and the calls that are none of them.
#include "shim/client/announcement.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "shim/client/announced_calls.h"
#include "shim/client/client_abi.h"

namespace rdmaemu::client {
namespace {

constexpr auto kCm = static_cast<uint32_t>(CallOp::kCmCommand);
constexpr uint32_t kGetEvent = kCm + RDMA_USER_CM_CMD_GET_EVENT;
constexpr uint32_t kQuery = kCm + RDMA_USER_CM_CMD_QUERY;
constexpr uint32_t kInit = kCm + RDMA_USER_CM_CMD_INIT_QP_ATTR;
constexpr auto kModify = static_cast<uint32_t>(CallOp::kModifyQp);

// The reply to the next sequence, and the sequences that were sent.
std::vector<std::byte> g_reply;
std::vector<std::vector<std::byte>> g_sent;
// True: the reply is offered, so that no message is needed.
bool g_is_offered = false;

void Append(std::vector<std::byte>& to, const void* from, size_t size) {
  const auto* const begin = static_cast<const std::byte*>(from);
  to.insert(to.end(), begin, begin + size);
  to.resize(PaddedStep(to.size()));
}

template <class Out>
void AddResult(uint32_t step, const Out& out, int error = 0) {
  SequenceOut head{};
  if (g_reply.empty()) Append(g_reply, &head, sizeof head);
  const ResultHeader header{step, error, sizeof out, 0};
  Append(g_reply, &header, sizeof header);
  Append(g_reply, &out, sizeof out);
  std::memcpy(&head, g_reply.data(), sizeof head);
  head.results++;
  std::memcpy(g_reply.data(), &head, sizeof head);
}

template <class In>
void AddStep(rdmaemu_announcement& announced, uint32_t op, const In& in, StepLink link) {
  std::vector<std::byte> step;
  const StepHeader header{op, sizeof in, static_cast<uint32_t>(link), 0};
  Append(step, &header, sizeof header);
  Append(step, &in, sizeof in);
  std::memcpy(announced.in + kFirstStepRoom + announced.in_bytes, step.data(), step.size());
  announced.in_bytes += static_cast<uint32_t>(step.size());
  announced.steps++;
}

template <class In>
bool Takes(uint32_t op, const In& in, AnnouncedReply& reply) {
  return TakeAnnounced(op, &in, sizeof in, reply);
}
template <class In>
bool Takes(uint32_t op, const In& in) {
  AnnouncedReply reply;
  return Takes(op, in, reply);
}

ModifyQpIn Modify(uint32_t qp, ibv_qp_state state) {
  ModifyQpIn in{};
  in.handle = qp;
  in.attr.qp_state = state;
  return in;
}
CmCall<rdma_ucm_query> Query(uint32_t id, uint32_t option) { return {7, 0, {0, id, option}}; }

class AnnouncementTest : public ::testing::Test {
 protected:
  AnnouncementTest() {
    g_reply.clear();
    g_sent.clear();
    g_is_offered = false;
  }
  ~AnnouncementTest() override { rdmaemu_client_end_announcement(&announced_); }
  void AnnounceMove() {
    announced_.first_op = kInit;
    AddStep(announced_, kModify, Modify(5, IBV_QPS_RTR), StepLink::kAttributes);
    rdmaemu_client_announce(&announced_);
  }

  rdmaemu_announcement announced_;
  const CmCall<rdma_ucm_init_qp_attr> init_{7, 0, {0, 3, IBV_QPS_RTR}};
};

TEST_F(AnnouncementTest, TheFirstCallSendsTheSequenceAndTheNextTakesItsReply) {
  AnnounceMove();
  AddResult(0, ib_uverbs_qp_attr{});
  AddResult(1, Nothing{}, EINVAL);
  EXPECT_FALSE(Takes(kModify, Modify(5, IBV_QPS_RTR))) << "not before the first call";
  EXPECT_TRUE(g_sent.empty());
  AnnouncedReply reply;
  EXPECT_TRUE(Takes(kInit, init_, reply));
  EXPECT_EQ(reply.error, 0);
  EXPECT_EQ(reply.size, sizeof(ib_uverbs_qp_attr));
  ASSERT_EQ(g_sent.size(), 1u);
  EXPECT_TRUE(Takes(kModify, Modify(5, IBV_QPS_RTR), reply));
  EXPECT_EQ(reply.error, EINVAL);
  EXPECT_FALSE(Takes(kModify, Modify(5, IBV_QPS_RTR))) << "each reply serves once";
  EXPECT_FALSE(Takes(kInit, init_)) << "each announcement is sent once";
  EXPECT_EQ(g_sent.size(), 1u);
}

TEST_F(AnnouncementTest, TheSequenceHasTheFirstCallAndTheAnnouncedOnes) {
  AnnounceMove();
  announced_.devices = 9;
  announced_.first_gift = StepGift::kAttributes;
  Takes(kInit, init_);
  ASSERT_EQ(g_sent.size(), 1u);
  std::vector<std::byte> expected;
  const SequenceIn head{2, 9};
  const StepHeader first{kInit, sizeof init_, 0, static_cast<uint32_t>(StepGift::kAttributes)};
  Append(expected, &head, sizeof head);
  Append(expected, &first, sizeof first);
  Append(expected, &init_, sizeof init_);
  const std::byte* const steps = announced_.in + kFirstStepRoom;
  expected.insert(expected.end(), steps, steps + announced_.in_bytes);
  EXPECT_EQ(g_sent[0], expected);
}

TEST_F(AnnouncementTest, ACallThatDiffersIsAnOrdinaryOne) {
  AnnounceMove();
  AddResult(0, ib_uverbs_qp_attr{});
  AddResult(1, Nothing{});
  EXPECT_TRUE(Takes(kInit, init_));
  EXPECT_FALSE(Takes(kModify, Modify(6, IBV_QPS_RTR))) << "another queue pair";
  EXPECT_FALSE(Takes(kModify, Modify(5, IBV_QPS_ERR))) << "another state";
  EXPECT_FALSE(Takes(kModify, Nothing{})) << "another size";
  EXPECT_FALSE(Takes(kInit, init_)) << "another call";
  EXPECT_TRUE(Takes(kModify, Modify(5, IBV_QPS_RTR))) << "the announced call";
}

TEST_F(AnnouncementTest, QueriesAreThoseOfTheEventsId) {
  announced_.first_op = kGetEvent;
  announced_.first_gift = StepGift::kEvent;
  for (uint32_t option = 0; option < 3; option++) {
    AddStep(announced_, kQuery, Query(0, option), StepLink::kEvent);
  }
  rdmaemu_client_announce(&announced_);
  rdma_ucm_event_resp event{};
  event.id = 33;
  AddResult(0, event);
  AddResult(2, Nothing{});  // the host skipped the first query
  EXPECT_TRUE(Takes(kGetEvent, CmCall<rdma_ucm_get_event>{7, 0, {}}));
  EXPECT_FALSE(Takes(kQuery, Query(33, 0)));
  EXPECT_FALSE(Takes(kQuery, Query(34, 1)));
  EXPECT_TRUE(Takes(kQuery, Query(33, 1)));
  EXPECT_FALSE(Takes(kQuery, Query(33, 2))) << "the host did not execute it";
}

TEST_F(AnnouncementTest, AnOfferedEventNeedsNoMessage) {
  announced_.first_op = kGetEvent;
  announced_.first_gift = StepGift::kEvent;
  announced_.devices = 1;
  AddStep(announced_, kQuery, Query(0, 1), StepLink::kEvent);
  rdmaemu_client_announce(&announced_);
  rdma_ucm_event_resp event{};
  event.id = 33;
  AddResult(0, event);
  AddResult(1, Nothing{});
  g_is_offered = true;
  EXPECT_TRUE(Takes(kGetEvent, CmCall<rdma_ucm_get_event>{7, 0, {}}));
  EXPECT_TRUE(Takes(kQuery, Query(33, 1)));
  EXPECT_TRUE(g_sent.empty());
}

TEST_F(AnnouncementTest, WithoutAReplyAllCallsAreOrdinary) {
  AnnounceMove();
  EXPECT_FALSE(Takes(kInit, init_));
  EXPECT_FALSE(Takes(kModify, Modify(5, IBV_QPS_RTR)));
  EXPECT_EQ(g_sent.size(), 1u);
}

TEST_F(AnnouncementTest, AReplyThatIsCutShortHasNoResults) {
  for (const size_t bytes : {sizeof(SequenceOut), sizeof(SequenceOut) + 8,
                             sizeof(SequenceOut) + sizeof(ResultHeader) + 8}) {
    g_reply.clear();
    AddResult(0, ib_uverbs_qp_attr{});
    g_reply.resize(bytes);
    rdmaemu_announcement announced;
    announced.first_op = kInit;
    AddStep(announced, kModify, Modify(5, IBV_QPS_RTR), StepLink::kAttributes);
    rdmaemu_client_announce(&announced);
    EXPECT_FALSE(Takes(kInit, init_)) << bytes;
    EXPECT_FALSE(Takes(kModify, Modify(5, IBV_QPS_RTR))) << bytes;
    rdmaemu_client_end_announcement(&announced);
  }
}

TEST_F(AnnouncementTest, AnnouncementsNestAndEnd) {
  AnnounceMove();
  AddResult(0, ib_uverbs_qp_attr{});
  AddResult(1, Nothing{});
  EXPECT_TRUE(Takes(kInit, init_));
  {
    rdmaemu_announcement inner;
    inner.first_op = kGetEvent;
    AddStep(inner, kQuery, Query(0, 0), StepLink::kEvent);
    rdmaemu_client_announce(&inner);
    EXPECT_FALSE(Takes(kModify, Modify(5, IBV_QPS_RTR))) << "of the outer announcement";
    rdmaemu_client_end_announcement(&inner);
  }
  EXPECT_TRUE(Takes(kModify, Modify(5, IBV_QPS_RTR)));
  rdmaemu_client_end_announcement(&announced_);
  EXPECT_FALSE(Takes(kInit, init_));
}

TEST_F(AnnouncementTest, AnotherThreadsCallsAreOrdinary) {
  AnnounceMove();
  AddResult(0, ib_uverbs_qp_attr{});
  std::thread([&] { EXPECT_FALSE(Takes(kInit, init_)); }).join();
  EXPECT_TRUE(g_sent.empty());
  EXPECT_TRUE(Takes(kInit, init_));
}

}  // namespace

uint32_t TakeOfferedEvent(uint32_t channel, uint32_t devices, void* out, uint32_t out_size) {
  if (!g_is_offered) return 0;
  EXPECT_EQ(channel, 7u);
  EXPECT_EQ(devices, 1u);
  EXPECT_LE(g_reply.size(), out_size);
  std::memcpy(out, g_reply.data(), g_reply.size());
  return static_cast<uint32_t>(g_reply.size());
}

uint32_t SendSequence(const void* in, uint32_t in_size, void* out, uint32_t out_size) {
  const auto* const begin = static_cast<const std::byte*>(in);
  g_sent.push_back({begin, begin + in_size});
  EXPECT_LE(g_reply.size(), out_size);
  if (!g_reply.empty()) std::memcpy(out, g_reply.data(), g_reply.size());
  return static_cast<uint32_t>(g_reply.size());
}

}  // namespace rdmaemu::client
