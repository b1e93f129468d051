// Measures data-path calls on the libibverbs.so.1 that dlopen finds (bench/layer/layer.py).
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kRounds = 9;

// Returns the processor time of this thread in nanoseconds. Other work on the machine does not
// count.
double ProcessorNs() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// Returns the median of kRounds rounds, in nanoseconds per call.
template <class Call>
double Measure(int calls, Call&& call) {
  double rounds[kRounds];
  for (double& round : rounds) {
    const double begin = ProcessorNs();
    for (int i = 0; i < calls; i++) call();
    round = (ProcessorNs() - begin) / calls;
  }
  std::sort(rounds, rounds + kRounds);
  return rounds[kRounds / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int calls = argc > 1 ? std::atoi(argv[1]) : 20000;
  void* const library = dlopen("libibverbs.so.1", RTLD_NOW);
  if (library == nullptr) return fprintf(stderr, "%s\n", dlerror()), 1;
  auto* const open =
      reinterpret_cast<ibv_context* (*)(ibv_device*)>(dlsym(library, "ibv_open_device"));
  ibv_device device{};
  ibv_context* const context = open == nullptr ? nullptr : open(&device);
  if (context == nullptr) return fprintf(stderr, "no context\n"), 1;
  ibv_qp qp{};
  ibv_cq full{}, empty{};
  qp.context = full.context = empty.context = context;
  qp.qp_type = IBV_QPT_RC;
  full.cqe = 1;
  ibv_sge sge{0x1000, 64, 5};
  ibv_send_wr wr{}, *bad = nullptr;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = 0x2000;
  wr.wr.rdma.rkey = 6;
  ibv_wc wc;
  printf("post_send %.1f\n", Measure(calls, [&] { ibv_post_send(&qp, &wr, &bad); }));
  printf("poll_cq %.1f\n", Measure(calls, [&] { ibv_poll_cq(&full, 1, &wc); }));
  printf("empty_poll %.1f\n", Measure(calls, [&] { ibv_poll_cq(&empty, 1, &wc); }));
  return 0;
}
