// For tests of where payloads are. Has the sizes at which an implementation may change how it moves
// bytes, two connected sides in one process or two, and steps that only these tests need.
#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/contract/support/command.h"
#include "tests/contract/support/side.h"
#include "tests/contract/support/state.h"

namespace rdma_contract {

inline constexpr uint32_t kPayloadSizes[] = {0, 1, 255, 256, 257, 4095, 4096, 4097, 65536, 1 << 20};
inline constexpr uint8_t kOwn = 'x';  // written by the program after an operation

// ---- steps

inline int CloseWindowStep(State& state, const int& window) {
  ibv_mw*& mw = state.mws[static_cast<size_t>(window)];
  const int error = ibv_dealloc_mw(mw);
  if (error == 0) mw = nullptr;
  return error;
}

struct WindowOrder {
  int qp, window, region;  // window -1: create one of type 1; region -1: bind to no region
  uint64_t address;
  size_t bytes;
};
struct BoundWindow {
  int window = -1;
  uint32_t rkey = 0;  // 0: the step failed
};
inline BoundWindow BindType1Step(State& state, const WindowOrder& order) {
  BoundWindow bound{order.window, 0};
  if (bound.window < 0) {
    ibv_mw* const made = ibv_alloc_mw(state.pd, IBV_MW_TYPE_1);
    if (made == nullptr) return bound;
    bound.window = static_cast<int>(state.mws.size());
    state.mws.push_back(made);
  }
  ibv_mw* const mw = state.mws[static_cast<size_t>(bound.window)];
  ibv_mw_bind bind{};
  bind.send_flags = IBV_SEND_SIGNALED;
  if (order.region >= 0) {
    bind.bind_info = {state.mrs[static_cast<size_t>(order.region)], order.address, order.bytes,
                      IBV_ACCESS_REMOTE_WRITE};
  }
  const QueuePair& pair = state.qps[static_cast<size_t>(order.qp)];
  if (ibv_bind_mw(pair.qp, mw, &bind) != 0) return bound;
  ibv_wc wc{};
  int got = 0;
  while ((got = ibv_poll_cq(pair.send_cq, 1, &wc)) == 0) sched_yield();
  if (got == 1 && wc.status == IBV_WC_SUCCESS) bound.rkey = mw->rkey;
  return bound;
}

struct ReregisterOrder {
  int region;
  uint64_t address;
  size_t bytes;
};
// Returns the result of ibv_rereg_mr: 0 or an enum ibv_rereg_mr_err_code.
inline int ReregisterStep(State& state, const ReregisterOrder& order) {
  return ibv_rereg_mr(state.mrs[static_cast<size_t>(order.region)], IBV_REREG_MR_CHANGE_TRANSLATION,
                      nullptr, reinterpret_cast<void*>(order.address), order.bytes, 0);
}

struct ResizeOrder {
  int qp, entries;
  Queue queue;
};
inline int ResizeStep(State& state, const ResizeOrder& order) {
  const QueuePair& pair = state.qps[static_cast<size_t>(order.qp)];
  return ibv_resize_cq(order.queue == Queue::kSend ? pair.send_cq : pair.receive_cq, order.entries);
}

// ---- the fixture

enum class Sides { kOneProcess, kTwoProcesses };
inline const char* NameOf(Sides sides) {
  return sides == Sides::kOneProcess ? "OneProcess" : "TwoProcesses";
}

// `here` sends to `there`. `there` is in the same process, in another one, or on another host.
struct PayloadPair {
  // kNewProcess: changes that the sides make to their processes end with the pair. If both sides
  // are in one process, they are one side.
  enum class Where { kThisProcess, kNewProcess };
  PayloadPair(Sides sides, uint32_t bytes, const QpSpec& spec = {},
              Where where = Where::kThisProcess)
      : size(bytes),
        local_owner(where == Where::kThisProcess ? Place::kThisProcess : Place::kLocalProcess),
        remote_owner(sides == Sides::kTwoProcesses  ? new Side(Place::kPeersMachine)
                     : where == Where::kThisProcess ? new Side(Place::kThisProcess)
                                                    : nullptr),
        local(local_owner),
        remote(remote_owner ? *remote_owner : local_owner) {
    ResetArena();
    pair = ConnectPair(local, remote, spec, {.mtu = IBV_MTU_4096});
    here = Allocate(room());
    there = Allocate(room());
    FillPattern(here.bytes(), 1);
    FillPattern(there.bytes(), 2);
    from = local.Register(here);
    to = remote.Register(there, kAllAccess | IBV_ACCESS_MW_BIND);
  }
  // Regions have at least one byte.
  uint32_t room() const { return size == 0 ? 1 : size; }
  WorkRequest Post(ibv_wr_opcode opcode, uint32_t rkey = 0) const {
    WorkRequest request{.wr_id = 2, .opcode = opcode};
    request.remote_address = there.address();
    request.rkey = rkey;
    return request.Add(here.address(), size, from.lkey);
  }
  // Posts a SEND and its receive. Returns when the sender has its completion.
  void DeliverUnpolled(uint64_t wr_id = 1) {
    ASSERT_EQ(remote.PostReceive(pair.remote,
                                 WorkRequest{.wr_id = wr_id}.Add(there.address(), size, to.lkey)),
              0);
    ASSERT_EQ(local.PostSend(pair.local, Post(IBV_WR_SEND)), 0);
    const Completion sent = local.Poll(pair.local, Queue::kSend);
    ASSERT_TRUE(sent.found);
    ASSERT_EQ(sent.wc.status, IBV_WC_SUCCESS) << Describe(sent);
  }
  void ExpectReceived(uint64_t wr_id = 1) {
    const Completion received = remote.Poll(pair.remote, Queue::kReceive);
    ASSERT_TRUE(received.found);
    EXPECT_EQ(received.wc.status, IBV_WC_SUCCESS) << Describe(received);
    EXPECT_EQ(received.wc.wr_id, wr_id);
    EXPECT_EQ(received.wc.byte_len, size);
  }
  bool Arrived() const { return FirstDifference(there.bytes().first(size), 1) == -1; }
  void MakeOwn() const { memset(there.data, kOwn, there.size); }
  // Returns the first byte that the program has not written itself, -1 when there is none.
  ptrdiff_t FirstForeign() const {
    for (size_t i = 0; i < there.size; i++) {
      if (there.data[i] != kOwn) return static_cast<ptrdiff_t>(i);
    }
    return -1;
  }

  uint32_t size;
  Side local_owner;
  std::unique_ptr<Side> remote_owner;
  Side &local, &remote;
  Pair pair{};
  Buffer here, there;
  Region from, to;
};

class PayloadTest : public testing::TestWithParam<Sides> {
 protected:
  // Runs the body once for each size, each time on a new pair.
  template <class Body>
  void EachSize(Body body, const QpSpec& spec = {},
                PayloadPair::Where where = PayloadPair::Where::kThisProcess) {
    for (const uint32_t size : kPayloadSizes) {
      SCOPED_TRACE(size);
      PayloadPair pair(GetParam(), size, spec, where);
      ASSERT_NO_FATAL_FAILURE(body(pair));
      EXPECT_TRUE(GuardsIntact());
      if (IsSkipped()) return;
    }
  }
};

#define EACH_WAY_OF_SIDES(fixture)                                                    \
  INSTANTIATE_TEST_SUITE_P(All, fixture,                                              \
                           testing::Values(Sides::kOneProcess, Sides::kTwoProcesses), \
                           [](const auto& info) { return std::string(NameOf(info.param)); })

}  // namespace rdma_contract
