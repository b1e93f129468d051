// The results of work on an iWARP device's QP, as measured on the kernel's siw. The sender gets
// only its own errors. An error that the peer detects ends the connection.
#include <poll.h>

#include <cerrno>
#include <cstdlib>

#include "tests/contract/support/connection.h"
#include "tests/contract/support/state.h"

namespace rdma_contract {
namespace {

constexpr uint32_t kBogusKey = 0xdeadbe00;

// Waits up to `limit_ms` for the next asynchronous event of the id's device and acknowledges it;
// -1: no event.
struct EventQuery {
  int id, limit_ms;
};
int AsyncEventStep(State& state, const EventQuery& query) {
  ibv_context* const context = state.ids[static_cast<size_t>(query.id)]->verbs;
  pollfd waiting{context->async_fd, POLLIN, 0};
  if (poll(&waiting, 1, query.limit_ms) <= 0) return -1;
  ibv_async_event event{};
  if (ibv_get_async_event(context, &event) != 0) return -1;
  ibv_ack_async_event(&event);
  return static_cast<int>(event.event_type);
}

class SiwData : public ConnectionTest {
 protected:
  // Creates a connection with a buffer on each side and two receives on the passive one.
  void Begin(uint32_t receive_bytes = 64) {
    QpSpec spec;
    spec.depth = 16;
    spec.inline_bytes = 64;
    ASSERT_NO_FATAL_FAILURE(StartListening());
    ASSERT_NO_FATAL_FAILURE(Resolve(&active_id));
    active_qp = active.CreateCmQp(active_id, spec);
    ASSERT_GE(active_qp, 0);
    ConnectSpec depths;
    depths.responder_resources = depths.initiator_depth = 4;
    ASSERT_EQ(active.CmConnect(active_id, depths), 0);
    passive_id = ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST).id;
    ASSERT_GE(passive_id, 0);
    passive_qp = passive.CreateCmQp(passive_id, spec);
    ASSERT_GE(passive_qp, 0);
    ASSERT_EQ(passive.Accept(passive_id, depths), 0);
    ExpectEvent(passive, RDMA_CM_EVENT_ESTABLISHED);
    ExpectEvent(active, RDMA_CM_EVENT_ESTABLISHED);
    here = Allocate(8192);
    there = Allocate(8192);
    ours = active.Register(here);
    theirs = passive.Register(there);
    ASSERT_EQ(ours.error, 0);
    ASSERT_EQ(theirs.error, 0);
    for (uint64_t wr_id = 200; wr_id < 202; ++wr_id) {
      WorkRequest receive{.wr_id = wr_id};
      receive.Add(there.address(), receive_bytes, theirs.lkey);
      ASSERT_EQ(passive.PostReceive(passive_qp, receive), 0);
    }
  }
  WorkRequest Work(ibv_wr_opcode opcode, uint32_t bytes) {
    WorkRequest request{
        .wr_id = 1, .opcode = opcode, .remote_address = there.address(), .rkey = theirs.rkey};
    return request.Add(here.address(), bytes, ours.lkey);
  }
  void ExpectSent(const WorkRequest& request, ibv_wc_status status) {
    ASSERT_EQ(active.PostSend(active_qp, request), 0);
    const Completion sent = active.Poll(active_qp, Queue::kSend);
    ASSERT_TRUE(sent.found);
    EXPECT_EQ(sent.wc.wr_id, request.wr_id);
    EXPECT_EQ(sent.wc.status, status) << Describe(sent);
  }
  void ExpectReceived(uint64_t wr_id, ibv_wc_status status) {
    const Completion received = passive.Poll(passive_qp, Queue::kReceive);
    ASSERT_TRUE(received.found);
    EXPECT_EQ(received.wc.wr_id, wr_id);
    EXPECT_EQ(received.wc.status, status) << Describe(received);
  }
  void ExpectDown() {
    ExpectEvent(passive, RDMA_CM_EVENT_DISCONNECTED);
    ExpectEvent(active, RDMA_CM_EVENT_DISCONNECTED);
  }
  int AsyncOfActive(int limit_ms = kPatience_ms) {
    return active.worker().Call(&AsyncEventStep, EventQuery{active_id, limit_ms});
  }
  int AsyncOfPassive(int limit_ms = kPatience_ms) {
    return passive.worker().Call(&AsyncEventStep, EventQuery{passive_id, limit_ms});
  }
  void ExpectReceivesFlushedAndDown() {
    ExpectReceived(200, IBV_WC_WR_FLUSH_ERR);
    ExpectReceived(201, IBV_WC_WR_FLUSH_ERR);
    ExpectDown();
  }

  Buffer here, there;
  Region ours, theirs;
};

// ---- errs: errors that the peer detects

TEST_F(SiwData, ErrsAWriteWithABadKeySucceedsAndTheConnectionEnds) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  WorkRequest write = Work(IBV_WR_RDMA_WRITE, 8);
  write.rkey = kBogusKey;
  ASSERT_NO_FATAL_FAILURE(ExpectSent(write, IBV_WC_SUCCESS));
  ExpectReceivesFlushedAndDown();
}

TEST_F(SiwData, ErrsAWriteOutOfBoundsSucceedsAndTheConnectionEnds) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  WorkRequest write = Work(IBV_WR_RDMA_WRITE, 5000);
  write.remote_address += there.size - 100;
  FillPattern(there.bytes(), 9);
  ASSERT_NO_FATAL_FAILURE(ExpectSent(write, IBV_WC_SUCCESS));
  ExpectReceivesFlushedAndDown();
  EXPECT_TRUE(GuardsIntact());
}

TEST_F(SiwData, ErrsAWriteWithoutTheRightSucceedsAndTheConnectionEnds) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  WorkRequest write = Work(IBV_WR_RDMA_WRITE, 8);
  write.rkey = passive.Register(there, IBV_ACCESS_LOCAL_WRITE).rkey;
  ASSERT_NO_FATAL_FAILURE(ExpectSent(write, IBV_WC_SUCCESS));
  ExpectReceivesFlushedAndDown();
}

TEST_F(SiwData, ErrsAReadWithABadKeyIsFlushed) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  WorkRequest read = Work(IBV_WR_RDMA_READ, 8);
  read.rkey = kBogusKey;
  ASSERT_NO_FATAL_FAILURE(ExpectSent(read, IBV_WC_WR_FLUSH_ERR));
  ExpectDown();
}

TEST_F(SiwData, ErrsAReadOutOfBoundsIsFlushed) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  WorkRequest read = Work(IBV_WR_RDMA_READ, 64);
  read.remote_address += there.size - 32;
  ASSERT_NO_FATAL_FAILURE(ExpectSent(read, IBV_WC_WR_FLUSH_ERR));
  ExpectDown();
}

TEST_F(SiwData, ErrsZeroBytesNeedNoKey) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    WorkRequest nothing = Work(opcode, 0);
    nothing.rkey = kBogusKey;
    ASSERT_NO_FATAL_FAILURE(ExpectSent(nothing, IBV_WC_SUCCESS));
  }
  ExpectQuiet(passive);
}

TEST_F(SiwData, ErrsASendThatIsTooLongSucceedsAndTheReceiveSaysWhy) {
  for (const uint32_t bytes : {100u, 5000u}) {
    SCOPED_TRACE(bytes);
    ASSERT_NO_FATAL_FAILURE(Begin(64));
    ASSERT_NO_FATAL_FAILURE(ExpectSent(Work(IBV_WR_SEND, bytes), IBV_WC_SUCCESS));
    ExpectReceived(200, IBV_WC_LOC_LEN_ERR);
    ExpectReceived(201, IBV_WC_WR_FLUSH_ERR);
    ExpectDown();
  }
}

TEST_F(SiwData, ErrsAReceiveWithABadKeyIsAGeneralError) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_NO_FATAL_FAILURE(ExpectSent(Work(IBV_WR_SEND, 8), IBV_WC_SUCCESS));
  ExpectReceived(200, IBV_WC_SUCCESS);
  ASSERT_EQ(passive.Deregister(theirs.index), 0);
  ASSERT_NO_FATAL_FAILURE(ExpectSent(Work(IBV_WR_SEND, 8), IBV_WC_SUCCESS));
  ExpectReceived(201, IBV_WC_GENERAL_ERR);
  ExpectDown();
}

// ---- errs: errors that the sender detects

TEST_F(SiwData, ErrsASendOrWriteFromMemoryThatIsNotItsOwnIsAQpError) {
  for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE}) {
    SCOPED_TRACE(opcode);
    ASSERT_NO_FATAL_FAILURE(Begin());
    WorkRequest request = Work(opcode, 64);
    request.piece[0].lkey = kBogusKey;
    ASSERT_NO_FATAL_FAILURE(ExpectSent(request, IBV_WC_LOC_QP_OP_ERR));
    ExpectReceivesFlushedAndDown();
  }
}

TEST_F(SiwData, ErrsASendFromBeyondItsRegionIsAQpErrorToo) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  WorkRequest request = Work(IBV_WR_SEND, 64);
  request.piece[0].addr += here.size - 32;
  ASSERT_NO_FATAL_FAILURE(ExpectSent(request, IBV_WC_LOC_QP_OP_ERR));
  ExpectReceivesFlushedAndDown();
}

TEST_F(SiwData, ErrsAReadIntoMemoryThatIsNotItsOwnIsAProtectionError) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  WorkRequest read = Work(IBV_WR_RDMA_READ, 8);
  read.piece[0].lkey = kBogusKey;
  ASSERT_NO_FATAL_FAILURE(ExpectSent(read, IBV_WC_LOC_PROT_ERR));
  ExpectReceivesFlushedAndDown();
}

// ---- errs: asynchronous events, and opcodes of failed work

TEST_F(SiwData, ErrsOfTheSenderItselfAreEventsOfItsQp) {
  for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    SCOPED_TRACE(opcode);
    const bool is_read = opcode == IBV_WR_RDMA_READ;
    ASSERT_NO_FATAL_FAILURE(Begin());
    WorkRequest request = Work(opcode, 8);
    request.piece[0].lkey = kBogusKey;
    ASSERT_NO_FATAL_FAILURE(
        ExpectSent(request, is_read ? IBV_WC_LOC_PROT_ERR : IBV_WC_LOC_QP_OP_ERR));
    EXPECT_EQ(AsyncOfActive(), is_read ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_FATAL);
    EXPECT_EQ(AsyncOfActive(kQuiet_ms), -1);
    ExpectDown();
  }
}

TEST_F(SiwData, ErrsOfAWriteAreEventsOfThePeersQpUnlessTheKeyIsUnknown) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  WorkRequest write = Work(IBV_WR_RDMA_WRITE, 64);
  write.remote_address += there.size - 32;
  ASSERT_NO_FATAL_FAILURE(ExpectSent(write, IBV_WC_SUCCESS));
  EXPECT_EQ(AsyncOfPassive(), IBV_EVENT_QP_ACCESS_ERR);
  ExpectDown();
  ASSERT_NO_FATAL_FAILURE(Begin());
  write = Work(IBV_WR_RDMA_WRITE, 8);
  write.rkey = kBogusKey;
  ASSERT_NO_FATAL_FAILURE(ExpectSent(write, IBV_WC_SUCCESS));
  ExpectDown();
  EXPECT_EQ(AsyncOfPassive(kQuiet_ms), -1);
}

TEST_F(SiwData, ErrsOfAReadAreRequestErrorsOfThePeersQp) {
  for (const bool is_key_known : {true, false}) {
    SCOPED_TRACE(is_key_known);
    ASSERT_NO_FATAL_FAILURE(Begin());
    WorkRequest read = Work(IBV_WR_RDMA_READ, 64);
    if (is_key_known) {
      read.remote_address += there.size - 32;
    } else {
      read.rkey = kBogusKey;
    }
    ASSERT_NO_FATAL_FAILURE(ExpectSent(read, IBV_WC_WR_FLUSH_ERR));
    EXPECT_EQ(AsyncOfPassive(), IBV_EVENT_QP_REQ_ERR);
    ExpectDown();
  }
}

TEST_F(SiwData, ErrsOfAReceiveAreEventsOfItsQp) {
  ASSERT_NO_FATAL_FAILURE(Begin(8));
  ASSERT_NO_FATAL_FAILURE(ExpectSent(Work(IBV_WR_SEND, 64), IBV_WC_SUCCESS));
  EXPECT_EQ(AsyncOfPassive(), IBV_EVENT_QP_FATAL);  // the receive is too short
  ExpectDown();
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_EQ(passive.Deregister(theirs.index), 0);
  ASSERT_NO_FATAL_FAILURE(ExpectSent(Work(IBV_WR_SEND, 8), IBV_WC_SUCCESS));
  EXPECT_EQ(AsyncOfPassive(), IBV_EVENT_QP_ACCESS_ERR);
  ExpectDown();
}

TEST_F(SiwData, ErrsAndFlushesNameTheirOperation) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  WorkRequest read = Work(IBV_WR_RDMA_READ, 8);
  read.rkey = kBogusKey;
  ASSERT_EQ(active.PostSend(active_qp, read), 0);
  const Completion flushed = active.Poll(active_qp, Queue::kSend);
  ASSERT_TRUE(flushed.found);
  EXPECT_EQ(flushed.wc.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(flushed.wc.opcode, IBV_WC_RDMA_READ);
  ExpectDown();
  ASSERT_NO_FATAL_FAILURE(Begin());
  WorkRequest write = Work(IBV_WR_RDMA_WRITE, 8);
  write.piece[0].lkey = kBogusKey;
  ASSERT_EQ(active.PostSend(active_qp, write), 0);
  const Completion failed = active.Poll(active_qp, Queue::kSend);
  ASSERT_TRUE(failed.found);
  EXPECT_EQ(failed.wc.status, IBV_WC_LOC_QP_OP_ERR);
  EXPECT_EQ(failed.wc.opcode, IBV_WC_RDMA_WRITE);
  const Completion received = passive.Poll(passive_qp, Queue::kReceive);
  ASSERT_TRUE(received.found);
  EXPECT_EQ(received.wc.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(received.wc.opcode, IBV_WC_RECV);
  ExpectDown();
}

// ---- wc: successful work

TEST_F(SiwData, WcSendWriteAndRead) {
  ASSERT_NO_FATAL_FAILURE(Begin(4096));
  FillPattern(here.bytes(), 4);
  ASSERT_NO_FATAL_FAILURE(ExpectSent(Work(IBV_WR_SEND, 100), IBV_WC_SUCCESS));
  const ibv_wc received = passive.Poll(passive_qp, Queue::kReceive).wc;
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.byte_len, 100u);
  EXPECT_EQ(received.wc_flags, 0u);  // no GRH
  ASSERT_NO_FATAL_FAILURE(ExpectSent(Work(IBV_WR_RDMA_WRITE, 5000), IBV_WC_SUCCESS));
  ASSERT_NO_FATAL_FAILURE(ExpectSent(Work(IBV_WR_RDMA_READ, 5000), IBV_WC_SUCCESS));
  EXPECT_EQ(FirstDifference({there.data, 5000}, 4), -1);
}

TEST_F(SiwData, WcImmediateDataAtomicsAndLongReadListsAreInvalid) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  // siw's library returns the negative errno for some opcodes.
  for (const ibv_wr_opcode opcode : {IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM,
                                     IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    EXPECT_EQ(std::abs(active.PostSend(active_qp, Work(opcode, 8))), EINVAL) << opcode;
  }
  ASSERT_NO_FATAL_FAILURE(ExpectSent(Work(IBV_WR_SEND, 8), IBV_WC_SUCCESS));  // still connected
}

TEST_F(SiwData, DepthOfTheReceiveQueueIsWhatWasAskedFor) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  WorkRequest receive{.wr_id = 300};
  receive.Add(here.address(), 8, ours.lkey);
  for (int i = 0; i < 16; ++i) ASSERT_EQ(active.PostReceive(active_qp, receive), 0) << i;
  EXPECT_EQ(std::abs(active.PostReceive(active_qp, receive)), ENOMEM);
}

TEST_F(SiwData, QueryQpSaysNoState) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  EXPECT_EQ(active.StateOf(active_qp), IBV_QPS_RESET);
  EXPECT_EQ(passive.StateOf(passive_qp), IBV_QPS_RESET);
  ASSERT_EQ(active.Disconnect(active_id), 0);
  ExpectDown();
  EXPECT_EQ(active.StateOf(active_qp), IBV_QPS_RESET);
}

}  // namespace
}  // namespace rdma_contract
