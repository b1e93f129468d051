// The same program with the same seed does the same to the byte.
#include <fstream>
#include <set>
#include <sstream>

#include "tests/embedded/pair.h"

namespace rdmaemu_test {
namespace {

using rdmaemu::Embedding;
using rdmaemu::EmbeddingOptions;
using rdmaemu::Fault;

constexpr int kRuns = 1000;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// A connection on a host where messages are lost at random, data, and the end of both; answers the
// trace.
std::string TraceOf(uint64_t seed) {
  const std::string path = testing::TempDir() + "determinism_test.jsonl";
  EmbeddingOptions options;
  options.seed = seed;
  options.trace_path = path;
  {
    Embedding host(options);
    const Fault lossy("at = \"cm\", probability = 0.3, drop = true");
    Pair pair;
    pair.Establish();
    if (testing::Test::HasFatalFailure()) return {};
    EXPECT_EQ(pair.server.Receive(), 0);
    EXPECT_EQ(pair.client.Send(), 0);
    EXPECT_THAT(NextCompletion(pair.client.cq), CompletionIs(IBV_WC_SUCCESS));
    EXPECT_EQ(rdma_disconnect(pair.client.id), 0);
    EXPECT_EQ(rdma_disconnect(pair.server.id), 0);
    host.RunUntilIdle();
  }
  return ReadFile(path);
}

TEST(Determinism, OneSeedIsOneTrace) {
  const std::string first = TraceOf(7);
  ASSERT_GT(first.size(), 1000u);
  for (int i = 1; i < kRuns; i++) {
    ASSERT_EQ(TraceOf(7), first) << "run " << i;
  }
}

TEST(Determinism, SeedsAreDifferentTraces) {
  std::set<std::string> traces;
  for (const uint64_t seed : {1, 2, 3}) traces.insert(TraceOf(seed));
  EXPECT_EQ(traces.size(), 3u);
}

}  // namespace
}  // namespace rdmaemu_test
