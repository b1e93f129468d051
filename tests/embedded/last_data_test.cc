// Tests the last data before the end of a connection, under rules that delay. Data that was
// acknowledged before rdma_disconnect is in the completion queue when DISCONNECTED is delivered, on
// one host and on two. Only a rule at the completion itself changes this order (docs/faults.md).
// tests/contract/cm_last_data_test.cc has the same tests without rules.
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tests/embedded/two_hosts.h"

namespace rdmaemu_test {
namespace {

using rdmaemu::Fault;

constexpr uint32_t kMessages = 8;  // as many as Side::MakeQp gives room for

// Rules that delay the data or the disconnect.
struct Delays {
  const char* name;
  std::vector<std::string> rules;
};
const Delays kDelays[] = {
    {"EachPacket", {"at = \"packet\", delay_ms = 5"}},
    {"SomePackets", {"at = \"packet\", delay_ms = 5, probability = 0.3"}},
    {"TheLastPacket", {"at = \"packet\", index = 8, delay_ms = 20"}},
    {"TheLink", {"at = \"link\", latency_ms = 2, jitter_ms = 3"}},
    {"TheDreq", {"at = \"cm.dreq\", delay_ms = 20"}},
    {"PacketsAndTheDreq",
     {"at = \"packet\", delay_ms = 5, probability = 0.5", "at = \"cm.dreq\", delay_ms = 1"}},
};

struct Registered {
  Registered(const Side& side, uint32_t size) : bytes(size * kMessages) {
    mr = ibv_reg_mr(side.id->pd, bytes.data(), bytes.size(), IBV_ACCESS_LOCAL_WRITE);
    EXPECT_NE(mr, nullptr);
  }
  ~Registered() { ibv_dereg_mr(mr); }
  ibv_sge Message(uint32_t index, uint32_t size) {
    return {reinterpret_cast<uint64_t>(bytes.data() + index * size), size, mr->lkey};
  }
  std::vector<char> bytes;
  ibv_mr* mr;
};

// Parameters: the delays, the number of hosts, the size of a message.
class LastDataTest : public TwoHostsTest,
                     public testing::WithParamInterface<std::tuple<Delays, int, uint32_t>> {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(pair.Establish());
    to = std::make_unique<Registered>(pair.server, Size());
    from = std::make_unique<Registered>(pair.client, Size());
    for (size_t i = 0; i < from->bytes.size(); ++i) from->bytes[i] = static_cast<char>(i % 251);
    for (uint32_t i = 0; i < kMessages; ++i) {
      ibv_sge piece = to->Message(i, Size());
      ibv_recv_wr work{i, nullptr, &piece, 1}, *bad;
      ASSERT_EQ(ibv_post_recv(pair.server.id->qp, &work, &bad), 0);
    }
    for (const std::string& rule : std::get<0>(GetParam()).rules) {
      rules.push_back(std::make_unique<Fault>("host = \"" + Receiver() + "\", " + rule));
    }
  }
  static std::string Receiver() { return std::get<1>(GetParam()) == 1 ? "a" : "b"; }
  static uint32_t Size() { return std::get<2>(GetParam()); }

  void SendAll() {
    for (uint32_t i = 0; i < kMessages; ++i) {
      ibv_sge piece = from->Message(i, Size());
      ibv_send_wr work{}, *bad;
      work.sg_list = &piece;
      work.num_sge = 1;
      work.opcode = IBV_WR_SEND;
      work.send_flags = IBV_SEND_SIGNALED;
      ASSERT_EQ(ibv_post_send(pair.client.id->qp, &work, &bad), 0);
    }
  }
  int SendsThatSucceeded() {
    int succeeded = 0;
    for (uint32_t i = 0; i < kMessages; ++i) {
      const auto completion = NextCompletion(pair.client.cq);
      if (completion && completion->status == IBV_WC_SUCCESS) ++succeeded;
    }
    return succeeded;
  }
  // Returns the number of receives that one poll finds, and checks their bytes.
  int ReceivesThatAreThere() {
    ibv_wc found[2 * kMessages];
    const int count = ibv_poll_cq(pair.server.cq, 2 * kMessages, found);
    int succeeded = 0;
    while (succeeded < count && found[succeeded].status == IBV_WC_SUCCESS) {
      EXPECT_EQ(found[succeeded].byte_len, Size());
      ++succeeded;
    }
    const size_t bytes = static_cast<size_t>(succeeded) * Size();
    EXPECT_EQ(memcmp(to->bytes.data(), from->bytes.data(), bytes), 0);
    return succeeded;
  }
  void ExpectDelays() {
    for (const auto& rule : rules) EXPECT_GT(rule->fired(), 0u) << rule->name();
  }

  Pair pair{std::get<1>(GetParam()) == 1 ? kAddressOfA : kAddressOfB, Receiver().c_str(), "a"};
  std::unique_ptr<Registered> from, to;
  std::vector<std::unique_ptr<Fault>> rules;
};

TEST_P(LastDataTest, CompletesBeforeDisconnectedIsDelivered) {
  ASSERT_NO_FATAL_FAILURE(SendAll());
  EXPECT_EQ(SendsThatSucceeded(), static_cast<int>(kMessages));
  ASSERT_EQ(rdma_disconnect(pair.client.id), 0);
  EXPECT_THAT(NextEvent(pair.listener.channel), EventIs(RDMA_CM_EVENT_DISCONNECTED));
  EXPECT_EQ(ReceivesThatAreThere(), static_cast<int>(kMessages));
  ExpectDelays();
}

// The sender does not wait for its completions. Some of its sends may be flushed, but the other
// side has every send that succeeded.
TEST_P(LastDataTest, ThatSucceededCompletesBeforeDisconnectedIsDelivered) {
  ASSERT_NO_FATAL_FAILURE(SendAll());
  ASSERT_EQ(rdma_disconnect(pair.client.id), 0);
  EXPECT_THAT(NextEvent(pair.listener.channel), EventIs(RDMA_CM_EVENT_DISCONNECTED));
  const int received = ReceivesThatAreThere();
  EXPECT_GE(received, SendsThatSucceeded());
}

// A rule at the receive's completion delays this completion alone, so DISCONNECTED may be delivered
// first. The data is not lost.
class DelayedCompletionTest : public LastDataTest {};

TEST_P(DelayedCompletionTest, ArrivesAfterDisconnected) {
  ASSERT_NO_FATAL_FAILURE(SendAll());
  EXPECT_EQ(SendsThatSucceeded(), static_cast<int>(kMessages));
  ASSERT_EQ(rdma_disconnect(pair.client.id), 0);
  EXPECT_THAT(NextEvent(pair.listener.channel), EventIs(RDMA_CM_EVENT_DISCONNECTED));
  EXPECT_EQ(ReceivesThatAreThere(), 0);
  host.Advance(std::chrono::milliseconds(200));
  EXPECT_EQ(ReceivesThatAreThere(), static_cast<int>(kMessages));
}

// The host keeps payloads of up to 256 bytes beside the completion. From 4 KiB on, a polling
// program copies the payload.
const auto kSizes = testing::Values(1u, 256u, 257u, 4096u, 65536u);
const auto kHosts = testing::Values(1, 2);

std::string NameOf(const testing::TestParamInfo<LastDataTest::ParamType>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::to_string(std::get<1>(info.param)) +
         "Host_" + std::to_string(std::get<2>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Rules, LastDataTest,
                         testing::Combine(testing::ValuesIn(kDelays), kHosts, kSizes), NameOf);
INSTANTIATE_TEST_SUITE_P(
    Rules, DelayedCompletionTest,
    testing::Combine(testing::Values(Delays{"TheCompletion", {"at = \"wc.recv\", delay_ms = 100"}}),
                     kHosts, kSizes),
    NameOf);

}  // namespace
}  // namespace rdmaemu_test
