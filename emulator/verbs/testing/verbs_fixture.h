// A Verbs with one rxe device at 10.0.0.1, an open context and a PD, for tests.
#pragma once

#include <vector>

#include "emulator/verbs/testing/fakes.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu::testing {

// Records the calls of its methods.
struct FakeTransport final : TransportHooks {
  void QpStateChanged(Time, QueuePair& qp, ibv_qp_state from) override {
    changes.push_back({qp.qpn, from, qp.state()});
  }
  void QpAttributesChanged(Time, QueuePair&, int) override { attribute_changes++; }
  void QpDestroyed(Time, QueuePair& qp) override { destroyed.push_back(qp.qpn); }
  void Quiesce(const PayloadScope&) override {}

  struct Change {
    uint32_t qpn;
    ibv_qp_state from, to;
  };
  std::vector<Change> changes;
  std::vector<uint32_t> destroyed;
  int attribute_changes = 0;
};

struct VerbsFixture {
  static constexpr GroupId kGroup{1}, kOtherGroup{2};
  static constexpr ProcessId kProcess{7};
  static constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                              IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                              IBV_ACCESS_MW_BIND;

  VerbsFixture() {
    verbs.SetTransport(&transport);
    DeviceConfig config{"rxe0", *BuiltInProfile("rxe"), {}};
    config.addresses.push_back({address});
    config.addresses.push_back({*NetAddress::Parse("fd00::1")});
    device = &verbs.AddDevice(std::move(config));
    context = *verbs.Open(kGroup, 0);
    pd = *verbs.AllocPd(kGroup, context->handle);
  }

  CompletionQueue* Cq(uint32_t entries, CompletionChannel* channel = nullptr,
                      uint64_t cookie = 0xc0) {
    return *verbs.CreateCq(
        kGroup, {context->handle, channel == nullptr ? 0 : channel->handle, entries, 0, cookie});
  }
  Result<QueuePair*> TryQp(int type, ibv_qp_cap cap, SharedReceiveQueue* srq = nullptr) {
    if (cq == nullptr) cq = Cq(64);
    return verbs.CreateQp(kGroup, {pd->handle, cq->handle, cq->handle,
                                   srq == nullptr ? 0 : srq->handle, type, false, cap, 0xa});
  }
  QueuePair* Qp(int type, SharedReceiveQueue* srq = nullptr) {
    return *TryQp(type, {8, 8, 2, 2, 0}, srq);
  }
  MemoryRegion* Mr(int access = kAll) {
    return *verbs.RegMr(kGroup, kProcess,
                        {pd->handle, access, uint64_t(bytes), sizeof bytes, uint64_t(bytes)});
  }
  ibv_ah_attr To(const NetAddress& peer, uint8_t gid_index = 1) const {
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.dgid = peer.ToGid();
    attr.grh.sgid_index = gid_index;
    return attr;
  }
  // Posts a receive as a program does.
  static void PostReceive(Ring& ring, uint64_t wr_id, const std::vector<rxe_sge>& sges,
                          uint32_t claimed_sges = UINT32_MAX) {
    auto* wqe = ring.SlotAs<rxe_recv_wqe>(ring.Producer());
    wqe->wr_id = wr_id;
    wqe->dma.num_sge = claimed_sges != UINT32_MAX ? claimed_sges : uint32_t(sges.size());
    for (size_t i = 0; i < sges.size(); i++) wqe->dma.sge[i] = sges[i];
    ring.SetProducer(ring.Next(ring.Producer()));
  }

  Time now{};
  NetAddress address = *NetAddress::Parse("10.0.0.1");
  NetAddress peer = *NetAddress::Parse("10.0.0.2");
  FakeSharedMemory shared_memory;
  FakeCounters counters;
  FakeMemory memory;
  FakeTrace trace;
  FakeTransport transport;
  Random random{42};
  Verbs verbs{{shared_memory, counters, memory, random, trace}};
  alignas(4096) char bytes[8192] = {};
  Device* device;
  Context* context;
  ProtectionDomain* pd;
  CompletionQueue* cq = nullptr;
};

}  // namespace rdmaemu::testing
