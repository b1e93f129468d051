// A READ brings the bytes that its memory had before the later requests of the queue pair took
// effect. Verbs promise this order only behind a fence. rdma_rxe answers a whole READ before it
// executes the next request (rxe_resp.c: READ_REPLY).
#include <array>

#include "tests/contract/support/payload.h"

namespace rdma_contract {
namespace {

using ReadOrder = PayloadTest;

struct Behind {
  int qp;
  WorkRequest read, request;
};
// Posts both requests as one list. The device has not executed the READ when the other request is
// posted.
int PostBehindStep(State& state, const Behind& order) {
  std::array<ibv_send_wr, 2> list{};
  std::array<ibv_sge, 2> pieces{order.read.piece[0], order.request.piece[0]};
  const auto fill = [&](size_t i, const WorkRequest& from) {
    list[i].wr_id = from.wr_id;
    list[i].sg_list = &pieces[i];
    list[i].num_sge = from.pieces;
    list[i].opcode = from.opcode;
    list[i].send_flags = from.flags;
    if (from.opcode == IBV_WR_SEND_WITH_INV) list[i].invalidate_rkey = from.imm;
    if (from.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      list[i].wr.atomic = {from.remote_address, from.compare_add, 0, from.rkey};
    } else {
      list[i].wr.rdma = {from.remote_address, from.rkey};
    }
  };
  fill(0, order.read);
  fill(1, order.request);
  list[0].next = &list[1];
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(state.qps[static_cast<size_t>(order.qp)].qp, list.data(), &bad);
}

// A READ of `there` into memory of its own.
struct Reading {
  Reading(PayloadPair& pair, uint32_t rkey) : p(pair), into(Allocate(p.room())) {
    to = p.local.Register(into);
    request =
        WorkRequest{.wr_id = 1, .opcode = IBV_WR_RDMA_READ}.Add(into.address(), p.size, to.lkey);
    request.remote_address = p.there.address();
    request.rkey = rkey;
  }
  void Post(const WorkRequest& behind) const {
    ASSERT_EQ(p.local.worker().Call(&PostBehindStep, Behind{p.pair.local, request, behind}), 0);
  }
  void ExpectBothSucceed() const {
    for (const uint64_t wr_id : {1, 3}) {
      const Completion done = p.local.Poll(p.pair.local, Queue::kSend);
      ASSERT_TRUE(done.found);
      EXPECT_EQ(done.wc.wr_id, wr_id);
      EXPECT_EQ(done.wc.status, IBV_WC_SUCCESS) << Describe(done);
    }
  }
  void ExpectBytesOf(uint32_t seed) const {
    EXPECT_EQ(FirstDifference(into.bytes().first(p.size), seed), -1);
  }
  // The program writes to the memory as soon as it has the message.
  void ExpectAnsweredBeforeTheMessage() const {
    const Completion received = p.remote.Poll(p.pair.remote, Queue::kReceive);
    ASSERT_TRUE(received.found);
    EXPECT_EQ(received.wc.status, IBV_WC_SUCCESS) << Describe(received);
    p.MakeOwn();
    ASSERT_NO_FATAL_FAILURE(ExpectBothSucceed());
    ExpectBytesOf(2);
  }

  PayloadPair& p;
  Buffer into;
  Region to{};
  WorkRequest request;
};

TEST_P(ReadOrder, AnInvalidatingSendEndsTheWindowAfterTheReadsBeforeIt) {
  EachSize([](PayloadPair& p) {
    const uint32_t rkey =
        p.remote.BindWindow(p.pair.remote, p.to.index, p.there, IBV_ACCESS_REMOTE_READ);
    ASSERT_NE(rkey, 0u);
    ASSERT_EQ(p.remote.PostReceive(p.pair.remote, WorkRequest{.wr_id = 2}), 0);
    const Reading reading(p, rkey);
    ASSERT_NO_FATAL_FAILURE(
        reading.Post({.wr_id = 3, .opcode = IBV_WR_SEND_WITH_INV, .imm = rkey}));
    ASSERT_NO_FATAL_FAILURE(reading.ExpectAnsweredBeforeTheMessage());
  });
}

TEST_P(ReadOrder, AWriteChangesTheMemoryAfterTheReadBeforeIt) {
  EachSize([](PayloadPair& p) {
    const Reading reading(p, p.to.rkey);
    WorkRequest write = p.Post(IBV_WR_RDMA_WRITE, p.to.rkey);
    write.wr_id = 3;
    ASSERT_NO_FATAL_FAILURE(reading.Post(write));
    ASSERT_NO_FATAL_FAILURE(reading.ExpectBothSucceed());
    reading.ExpectBytesOf(2);
    EXPECT_TRUE(p.Arrived());
  });
}

TEST_P(ReadOrder, AnAtomicChangesTheMemoryAfterTheReadBeforeIt) {
  EachSize([](PayloadPair& p) {
    if (p.size < 8 || p.there.address() % 8 != 0) return;
    const Buffer old = Allocate(8);
    const Region at = p.local.Register(old);
    const Reading reading(p, p.to.rkey);
    WorkRequest add{.wr_id = 3,
                    .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                    .remote_address = p.there.address(),
                    .rkey = p.to.rkey,
                    .compare_add = 1};
    ASSERT_NO_FATAL_FAILURE(reading.Post(add.Add(old.address(), 8, at.lkey)));
    ASSERT_NO_FATAL_FAILURE(reading.ExpectBothSucceed());
    reading.ExpectBytesOf(2);
  });
}

TEST_P(ReadOrder, AMessageArrivesAfterTheReadBeforeIt) {
  EachSize([](PayloadPair& p) {
    ASSERT_EQ(p.remote.PostReceive(p.pair.remote, WorkRequest{.wr_id = 2}), 0);
    const Reading reading(p, p.to.rkey);
    ASSERT_NO_FATAL_FAILURE(reading.Post({.wr_id = 3, .opcode = IBV_WR_SEND}));
    ASSERT_NO_FATAL_FAILURE(reading.ExpectAnsweredBeforeTheMessage());
  });
}

EACH_WAY_OF_SIDES(ReadOrder);

}  // namespace
}  // namespace rdma_contract
