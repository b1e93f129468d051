// Measures the cost of single API calls to a program. Most of them are a round trip to the host.
// Calls of the data path only access shared memory. Run this under `tools/rdmaemu run --`.
#include <benchmark/benchmark.h>
#include <infiniband/verbs.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

namespace {

constexpr int kDepth = 256;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

// Exits if an object cannot be created, because the benchmark would measure nothing.
template <class T>
T* Need(T* object, const char* what) {
  if (object != nullptr) return object;
  std::perror(what);
  std::exit(1);
}

// The first device, and the objects that every QP needs.
struct Objects {
  Objects() {
    ibv_device** const devices = Need(ibv_get_device_list(nullptr), "ibv_get_device_list");
    context = Need(ibv_open_device(Need(devices[0], "a device")), "ibv_open_device");
    ibv_free_device_list(devices);
    pd = Need(ibv_alloc_pd(context), "ibv_alloc_pd");
    cq = Need(ibv_create_cq(context, 2 * kDepth, nullptr, nullptr, 0), "ibv_create_cq");
  }
  ~Objects() {
    ibv_destroy_cq(cq);
    ibv_dealloc_pd(pd);
    ibv_close_device(context);
  }
  ibv_qp* CreateQp() {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {kDepth, kDepth, 1, 1, 0};
    return Need(ibv_create_qp(pd, &init), "ibv_create_qp");
  }

  ibv_context* context;
  ibv_pd* pd;
  ibv_cq* cq;
};

void QueryPort(benchmark::State& state) {
  Objects objects;
  ibv_port_attr attributes;
  for (auto _ : state) benchmark::DoNotOptimize(ibv_query_port(objects.context, 1, &attributes));
}
BENCHMARK(QueryPort)->UseRealTime();

void AllocAndDeallocPd(benchmark::State& state) {
  Objects objects;
  for (auto _ : state) ibv_dealloc_pd(Need(ibv_alloc_pd(objects.context), "ibv_alloc_pd"));
}
BENCHMARK(AllocAndDeallocPd)->UseRealTime();

void RegAndDeregMr(benchmark::State& state) {
  Objects objects;
  std::vector<char> memory(static_cast<size_t>(state.range(0)));
  for (auto _ : state) {
    ibv_dereg_mr(Need(ibv_reg_mr(objects.pd, memory.data(), memory.size(), kAccess), "ibv_reg_mr"));
  }
}
BENCHMARK(RegAndDeregMr)->Arg(4096)->Arg(1 << 20)->Arg(64 << 20)->UseRealTime();

void CreateAndDestroyCq(benchmark::State& state) {
  Objects objects;
  for (auto _ : state) {
    ibv_destroy_cq(Need(ibv_create_cq(objects.context, kDepth, nullptr, nullptr, 0), "a CQ"));
  }
}
BENCHMARK(CreateAndDestroyCq)->UseRealTime();

void CreateAndDestroyQp(benchmark::State& state) {
  Objects objects;
  for (auto _ : state) ibv_destroy_qp(objects.CreateQp());
}
BENCHMARK(CreateAndDestroyQp)->UseRealTime();

void PollEmptyCq(benchmark::State& state) {
  Objects objects;
  ibv_wc completion;
  for (auto _ : state) benchmark::DoNotOptimize(ibv_poll_cq(objects.cq, 1, &completion));
}
BENCHMARK(PollEmptyCq)->UseRealTime();

// Posts receives until the queue is full. Emptying the queue by RESET is not timed.
void PostReceive(benchmark::State& state) {
  Objects objects;
  std::vector<char> memory(4096);
  ibv_mr* const mr =
      Need(ibv_reg_mr(objects.pd, memory.data(), memory.size(), kAccess), "ibv_reg_mr");
  ibv_qp* const qp = objects.CreateQp();
  ibv_sge piece{reinterpret_cast<uint64_t>(memory.data()), 64, mr->lkey};
  ibv_recv_wr request{0, nullptr, &piece, 1};
  int posted = kDepth;
  for (auto _ : state) {
    if (posted == kDepth) {
      state.PauseTiming();
      ibv_qp_attr attributes{};
      attributes.qp_state = IBV_QPS_RESET;
      ibv_modify_qp(qp, &attributes, IBV_QP_STATE);
      attributes.qp_state = IBV_QPS_INIT;
      attributes.port_num = 1;
      ibv_modify_qp(qp, &attributes,
                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
      posted = 0;
      state.ResumeTiming();
    }
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_recv(qp, &request, &bad) != 0) {
      state.SkipWithError("ibv_post_recv failed");
      break;
    }
    posted++;
  }
  ibv_destroy_qp(qp);
  ibv_dereg_mr(mr);
}
// Few iterations, because each full queue is emptied by two calls that are not timed.
BENCHMARK(PostReceive)->Iterations(1 << 16)->UseRealTime();

}  // namespace
