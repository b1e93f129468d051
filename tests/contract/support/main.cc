// The main program of every contract test. With --hold it only keeps the device open until end of
// input, because a host of the emulator runs as long as it has a client.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/contract/support/arena.h"
#include "tests/contract/support/side.h"
#include "tests/contract/support/worker.h"

namespace {

int Hold() {
  ibv_context* context = rdma_contract::OpenTestDevice();
  puts(context ? "holding" : "no device");
  fflush(stdout);
  char byte;
  while (context != nullptr && read(STDIN_FILENO, &byte, 1) > 0) {
  }
  if (context != nullptr) ibv_close_device(context);
  return context ? 0 : 1;
}

class FreshArena : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { rdma_contract::ResetArena(); }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "--hold") == 0) return Hold();
  if (argc == 4 && strcmp(argv[1], "--worker") == 0)
    rdma_contract::ServeAnew(atoi(argv[2]), atoi(argv[3]));
  rdma_contract::StartNursery(rdma_contract::MapArena());
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new FreshArena);
  return RUN_ALL_TESTS();
}
