// rate ADDRESS MESSAGES: prints how many messages of 64 bytes a queue pair sends to itself per
// second of the process's time. Each message is posted, received, and polled on both sides.
#include <stdlib.h>
#include <time.h>

#include <algorithm>

#include "usage.h"

namespace {

constexpr int kRounds = 9;
constexpr int kBatch = 16;

double Seconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void SendBatch(Verbs& verbs) {
  ibv_sge sge = verbs.Sge(64);
  ibv_send_wr wr = verbs.Write(&sge);
  wr.opcode = IBV_WR_SEND;
  for (int i = 0; i < kBatch; i++) CHECK(verbs.PostReceive(verbs.Sge(64)) == 0);
  for (int i = 0; i < kBatch; i++) CHECK(verbs.Post(wr) == 0);
  ibv_wc completions[2 * kBatch];
  for (int left = 2 * kBatch; left > 0;) {
    const int count = ibv_poll_cq(verbs.cq, left, completions);
    CHECK(count >= 0);
    for (int i = 0; i < count; i++) CHECK(completions[i].status == IBV_WC_SUCCESS);
    left -= count;
  }
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(argc == 3);
  g_address = argv[1];
  const int batches = std::max(1, atoi(argv[2]) / kBatch);
  Verbs verbs({.max_send_wr = kBatch, .max_recv_wr = kBatch, .cqe = 4 * kBatch});
  verbs.Connect();
  double rounds[kRounds];
  for (double& round : rounds) {
    const double begin = Seconds();
    for (int i = 0; i < batches; i++) SendBatch(verbs);
    round = batches * kBatch / (Seconds() - begin);
  }
  std::sort(rounds, rounds + kRounds);
  printf("rate %.0f\n", rounds[kRounds / 2]);
  verbs.Destroy();
  return 0;
}
