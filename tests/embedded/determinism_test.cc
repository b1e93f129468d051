// The same program with the same seed gives the same trace to the byte.
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "docs/examples/kv/client.h"
#include "docs/examples/kv/server.h"
#include "tests/embedded/two_hosts.h"

namespace rdmaemu_test {
namespace {

using rdmaemu::Embedding;
using rdmaemu::EmbeddingOptions;
using rdmaemu::Fault;

#ifdef __SANITIZE_THREAD__
constexpr int kRuns = 20;  // each takes many times as long
#else
constexpr int kRuns = 250;
#endif

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Runs a connection, data and a disconnect on a host that loses messages at random. Returns the
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

// The same between two machines, of which one is paused for a while and then crashes. Returns the
// actions of both in one order.
std::string TimelineOfTwo(uint64_t seed) {
  EmbeddingOptions options;
  options.name = "a";
  options.devices = {DeviceAt(kAddressOfA)};
  options.seed = seed;
  rdmaemu::HostOptions other;
  other.name = "b";
  other.devices = {DeviceAt(kAddressOfB)};
  Embedding hosts(options);
  hosts.Add(other);
  const Fault lossy("at = \"cm\", probability = 0.3, drop = true"),
      slow("host = \"b\", at = \"link\", loss = 0.1, latency_ms = 1, jitter_ms = 3"),
      stands("host = \"b\", at = \"wc.recv\", pause_ms = 5");
  Pair pair(kAddressOfB, "b", "a");
  pair.Establish();
  if (testing::Test::HasFatalFailure()) return {};
  EXPECT_EQ(pair.server.Receive(), 0);
  EXPECT_EQ(pair.client.Send(), 0);
  EXPECT_THAT(NextCompletion(pair.client.cq), CompletionIs(IBV_WC_SUCCESS));
  hosts.Remove("b");
  EXPECT_EQ(pair.client.Send(), 0);
  EXPECT_THAT(NextCompletion(pair.client.cq), CompletionIs(IBV_WC_RETRY_EXC_ERR));
  hosts.RunUntilIdle();
  return rdmaemu::Timeline();
}

// Both sides of one connection, each in a thread: one message a `period`, in program time. The
// hosts are 1 ms apart, so that no two threads act at one moment.
void ServeFrom(Pair& pair, int messages) {
  pair.Accept();
  EXPECT_THAT(NextEvent(pair.listener.channel), EventIs(RDMA_CM_EVENT_ESTABLISHED, 0));
  for (int i = 0; i < messages; i++) {
    EXPECT_EQ(pair.server.Receive(), 0);
    EXPECT_THAT(NextCompletion(pair.server.cq), CompletionIs(IBV_WC_SUCCESS));
  }
  EXPECT_THAT(NextEvent(pair.listener.channel), EventIs(RDMA_CM_EVENT_DISCONNECTED, 0));
  EXPECT_EQ(rdma_disconnect(pair.server.id), 0);
}

void AskFrom(Pair& pair, std::chrono::microseconds start, std::chrono::milliseconds period,
             int messages) {
  std::this_thread::sleep_for(start);
  pair.Resolve();
  EXPECT_EQ(pair.Connect(), 0);
  EXPECT_THAT(NextEvent(pair.client.channel), EventIs(RDMA_CM_EVENT_ESTABLISHED, 0));
  for (int i = 0; i < messages; i++) {
    std::this_thread::sleep_for(period);
    EXPECT_EQ(pair.client.Send(), 0);
    EXPECT_THAT(NextCompletion(pair.client.cq), CompletionIs(IBV_WC_SUCCESS));
  }
  std::this_thread::sleep_for(period);
  EXPECT_EQ(rdma_disconnect(pair.client.id), 0);
  // Its status is -ETIMEDOUT when the DREP is lost.
  EXPECT_THAT(NextEvent(pair.client.channel), EventIs(RDMA_CM_EVENT_DISCONNECTED));
}

// Four threads in program time, which meet only in waits: two servers and their clients, with lost
// packets and CM messages. Returns the timeline of both hosts.
std::string TimelineOfFourThreads(uint64_t seed) {
  EmbeddingOptions options;
  options.name = "a";
  options.devices = {DeviceAt(kAddressOfA)};
  options.seed = seed;
  options.program_time = true;
  rdmaemu::HostOptions other;
  other.name = "b";
  other.devices = {DeviceAt(kAddressOfB)};
  Embedding hosts(options);
  hosts.Add(other);
  const Fault far("at = \"link\", loss = 0.05, latency_ms = 1"),
      lossy("at = \"cm\", probability = 0.2, drop = true");
  constexpr int kMessages = 5;
  Pair one(kAddressOfB, "b", "a"), two(kAddressOfB, "b", "a", Pair::kPort + 1);
  one.Listen();
  two.Listen();
  if (testing::Test::HasFatalFailure()) return {};
  using std::chrono::microseconds, std::chrono::milliseconds;
  std::thread threads[] = {
      std::thread([&] { ServeFrom(one, kMessages); }),
      std::thread([&] { ServeFrom(two, kMessages); }),
      std::thread([&] { AskFrom(one, microseconds(100), milliseconds(7), kMessages); }),
      std::thread([&] { AskFrom(two, microseconds(350), milliseconds(11), kMessages); })};
  for (std::thread& each : threads) each.join();
  return rdmaemu::Timeline();
}

// The example of docs/examples/kv in program time: the server in a thread of its own on b, a client
// on a. The network delays each packet, so that the two threads act at different moments.
std::string TimelineOfKeyValueStore(uint64_t seed) {
  EmbeddingOptions options;
  options.name = "a";
  options.devices = {DeviceAt(kAddressOfA)};
  options.seed = seed;
  options.program_time = true;
  rdmaemu::HostOptions other;
  other.name = "b";
  other.devices = {DeviceAt(kAddressOfB)};
  Embedding hosts(options);
  hosts.Add(other);
  const Fault far("at = \"link\", loss = 0.05, latency_ms = 1"),
      lossy("at = \"cm\", probability = 0.2, drop = true");
  std::optional<kv::Server> server;
  {
    const rdmaemu::OnHost there("b");
    server.emplace(uint16_t{Pair::kPort});
  }
  std::thread serves([&] { server->Run(); });
  {
    kv::Client client(kAddressOfB, Pair::kPort);
    for (const char* key : {"one", "two"}) {
      client.Put(key, std::string(kv::kMaxValueBytes, 'x'));
      EXPECT_EQ(client.Get(key), std::string(kv::kMaxValueBytes, 'x'));
    }
    EXPECT_TRUE(client.Delete("two"));
  }
  std::this_thread::sleep_for(std::chrono::minutes(1));  // the server ends the connection
  EXPECT_EQ(server->connections(), 0u);
  const std::string timeline = rdmaemu::Timeline();
  server->Stop();
  serves.join();
  return timeline;
}

void ExpectOneTrace(std::string (&trace_of)(uint64_t seed)) {
  const std::string first = trace_of(7);
  ASSERT_GT(first.size(), 1000u);
  for (int i = 1; i < kRuns; i++) {
    ASSERT_EQ(trace_of(7), first) << "run " << i;
  }
}

TEST(Determinism, OneSeedIsOneTrace) { ExpectOneTrace(TraceOf); }

TEST(Determinism, OneSeedIsOneTimelineOfTwoHosts) { ExpectOneTrace(TimelineOfTwo); }

TEST(Determinism, OneSeedIsOneTimelineOfFourThreads) { ExpectOneTrace(TimelineOfFourThreads); }

TEST(Determinism, OneSeedIsOneTimelineOfTheKeyValueStore) {
  ExpectOneTrace(TimelineOfKeyValueStore);
}

TEST(Determinism, SeedsAreDifferentTraces) {
  std::set<std::string> traces;
  for (const uint64_t seed : {1, 2, 3}) traces.insert(TraceOf(seed));
  EXPECT_EQ(traces.size(), 3u);
  traces.clear();
  for (const uint64_t seed : {1, 2, 3}) traces.insert(TimelineOfTwo(seed));
  EXPECT_EQ(traces.size(), 3u);
}

}  // namespace
}  // namespace rdmaemu_test
