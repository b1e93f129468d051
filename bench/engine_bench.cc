// Measures the host's cost of one message, without processes, clocks and system calls. Two queue
// pairs of one host in this process are posted to and polled as a program's library does it.
#include <benchmark/benchmark.h>

#include "emulator/transport/harness.h"

namespace {

using namespace rdmaemu;
using namespace rdmaemu::transport::testing;

constexpr uint32_t kDepth = 64;

class Bench {
 public:
  explicit Bench(size_t pairs) : world(/*local=*/true) {
    world.a.verbs.ProcessJoined(kGroup, kProcess);
    for (size_t i = 0; i < pairs; i++) {
      x.push_back(world.Make(world.a, IBV_QPT_RC, 1 << 20, 2 * kDepth));
      y.push_back(world.Make(world.a, IBV_QPT_RC, 1 << 20, 2 * kDepth));
    }
    for (size_t i = 0; i < pairs; i++) world.Join(x[i], y[i]);
  }
  void Send(size_t i, uint32_t bytes, bool signaled) {
    const uint32_t index = x[i].qp->send_ring.Producer();
    SendEntry& entry = *x[i].qp->send_ring.SlotAs<SendEntry>(index);
    entry = {};
    entry.opcode = IBV_WR_SEND;
    entry.send_flags = signaled ? IBV_SEND_SIGNALED : 0;
    entry.state = kPayloadTaken;
    entry.num_sge = 1;
    const rxe_sge sge = x[i].Sge(0, bytes);
    std::memcpy(entry.Data(), &sge, sizeof sge);
    x[i].qp->send_ring.SetProducer(x[i].qp->send_ring.Next(index));
  }
  void Receive(size_t i, uint32_t bytes) {
    const uint32_t index = y[i].qp->recv_ring.Producer();
    auto* wqe = y[i].qp->recv_ring.SlotAs<rxe_recv_wqe>(index);
    std::memset(static_cast<void*>(wqe), 0, sizeof *wqe);
    wqe->dma.num_sge = 1;
    wqe->dma.length = bytes;
    const rxe_sge sge = y[i].Sge(0, bytes);
    std::memcpy(static_cast<void*>(wqe + 1), &sge, sizeof sge);
    y[i].qp->recv_ring.SetProducer(y[i].qp->recv_ring.Next(index));
  }
  static uint32_t Drain(CompletionQueue& cq) {
    const uint32_t count = cq.ring.Count();
    for (uint32_t at = cq.ring.Consumer(), i = 0; i < count; i++, at = cq.ring.Next(at)) {
      (void)cq.slots[at].Claim();
    }
    cq.ring.SetConsumer(cq.ring.Producer());
    return count;
  }
  void Work() {
    while (world.a.engine.Work(world.now)) {
    }
  }

  World world;
  std::vector<Endpoint> x, y;
};

// Sends a batch of 64-byte SENDs on each pair. One of 16 is signalled.
void SendRate(benchmark::State& state) {
  const auto pairs = static_cast<size_t>(state.range(0));
  constexpr uint32_t kBatch = 16;
  Bench bench(pairs);
  for (auto _ : state) {
    for (size_t i = 0; i < pairs; i++) {
      for (uint32_t k = 0; k < kBatch; k++) bench.Receive(i, 64);
      for (uint32_t k = 0; k < kBatch; k++) bench.Send(i, 64, k + 1 == kBatch);
      bench.world.Ring(bench.x[i]);
    }
    bench.Work();
    for (size_t i = 0; i < pairs; i++) {
      if (Bench::Drain(*bench.y[i].recv_cq) != kBatch || Bench::Drain(*bench.x[i].send_cq) != 1) {
        state.SkipWithError("a message did not arrive");
      }
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(pairs * kBatch));
}
BENCHMARK(SendRate)->Arg(1)->Arg(16);

}  // namespace
