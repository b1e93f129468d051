// Fault rules at packets: between two hosts and inside one, on their way out and in. Whatever
// happens to a packet of a reliable connection, the message arrives whole, or its request fails.
#include "emulator/host/faults_packets.h"

#include <gtest/gtest.h>

#include "emulator/host/testing/fault_world.h"

namespace rdmaemu::testing {
namespace {

using std::chrono::seconds;

constexpr uint32_t kMessageBytes = 8 * 1024;  // eight packets

class PacketFaultsTest : public FaultQps {
 protected:
  // From now on both queue pairs are the server's host's.
  void StayInside() {
    is_inside_ = true;
    a_ = verb_a_.CreateQp(IBV_QPT_RC, 32);
    inside_ = neighbour_.CreateQp(IBV_QPT_RC, 32);
    verb_a_.ConnectRc(a_, "127.0.0.1", inside_.made.qpn);
    neighbour_.ConnectRc(inside_, "127.0.0.1", a_.made.qpn);
    mr_b_ = neighbour_.Register(target_.data(), kBytes,
                                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  }
  // At the host that receives the requests.
  void OnReceiver(const std::string& rule) { is_inside_ ? OnServer(rule) : OnClient(rule); }
  void FillSource() {
    for (size_t i = 0; i < source_.size(); i++)
      source_[i] = static_cast<std::byte>(i * 7 + i / 256);
  }
  // Status of the one request that is under way.
  uint32_t AwaitCompletion(Duration limit = seconds(10)) {
    ib_uverbs_wc wc{};
    EXPECT_TRUE(world_.RunUntil([&] { return verb_a_.Poll(wc); }, limit)) << "no completion";
    return wc.status;
  }
  bool HasArrived(uint32_t bytes) const {
    return std::equal(source_.begin(), source_.begin() + bytes, target_.begin());
  }
  uint64_t Counter(Host& host, const std::string& name) {
    const std::string status = host.StatusJson(), key = "\"" + name + "\":";
    const size_t at = status.find(key);
    return at == status.npos ? UINT64_MAX : std::stoull(status.substr(at + key.size()));
  }

  bool is_inside_ = false;
  Verb neighbour_{server_client_};
  Verb::Qp inside_;
};

struct Fate {
  const char* name;
  const char* action;
};
constexpr Fate kFates[] = {{"drop", "drop = true"},
                           {"delay", "delay_ms = 3"},
                           {"duplicate", "duplicate = 2"},
                           {"reorder", "reorder = 2"},
                           {"corrupt", "corrupt = true"}};

class EachFate
    : public PacketFaultsTest,
      public ::testing::WithParamInterface<std::tuple<Fate, const char*, const char*, bool>> {};

TEST_P(EachFate, LeavesTheMessageWhole) {
  const auto& [fate, opcode, direction, inside] = GetParam();
  if (inside) StayInside();
  FillSource();
  const bool from_receiver = std::string(opcode) == "rc_acknowledge";
  const bool at_server = inside || (std::string(direction) == "send") != from_receiver;
  const std::string rule = std::string("name = \"r\", at = \"packet.") + opcode +
                           "\", direction = \"" + direction + "\", nth = 1, " + fate.action;
  at_server ? OnServer(rule) : OnClient(rule);
  PostWrite(1, kMessageBytes);
  EXPECT_EQ(AwaitCompletion(), IBV_WC_SUCCESS);
  EXPECT_TRUE(HasArrived(kMessageBytes));
  const std::string list =
      AskFaults(at_server ? server_client_ : client_client_, CallOp::kFaultList);
  EXPECT_NE(list.find("\"fired\":1"), std::string::npos) << list;
  // Nothing of it stays behind.
  PostWrite(2, kMessageBytes);
  EXPECT_EQ(AwaitCompletion(), IBV_WC_SUCCESS);
}

INSTANTIATE_TEST_SUITE_P(Everywhere, EachFate,
                         ::testing::Combine(::testing::ValuesIn(kFates),
                                            ::testing::Values("rc_write_first", "rc_write_middle",
                                                              "rc_write_last", "rc_acknowledge"),
                                            ::testing::Values("send", "receive"),
                                            ::testing::Bool()),
                         [](const auto& tested) {
                           return std::string(std::get<0>(tested.param).name) + "_" +
                                  std::get<1>(tested.param) + "_" + std::get<2>(tested.param) +
                                  (std::get<3>(tested.param) ? "_inside" : "_wire");
                         });

class InsideOrNot : public PacketFaultsTest, public ::testing::WithParamInterface<bool> {
 protected:
  InsideOrNot() {
    if (GetParam()) StayInside();
  }
};
INSTANTIATE_TEST_SUITE_P(, InsideOrNot, ::testing::Bool(),
                         [](const auto& tested) { return tested.param ? "inside" : "wire"; });

TEST_P(InsideOrNot, ARequestWhosePacketsAreAllLostRunsOutOfRetries) {
  OnReceiver("at = \"packet.rc_write_only\", drop = true");
  PostWrite(1, 512);
  EXPECT_EQ(AwaitCompletion(), IBV_WC_RETRY_EXC_ERR);
}

TEST_P(InsideOrNot, APacketIsMeantByItsPlaceOnItsFlowAndItsSize) {
  OnReceiver("name = \"index\", at = \"packet.rc_write_middle\", index = 3, drop = true");
  OnReceiver(
      "name = \"size\", at = \"packet\", min_bytes = 100, max_bytes = 100, drop = true, "
      "times = 1");
  OnReceiver("name = \"none\", at = \"packet\", min_bytes = 1025, drop = true");
  PostWrite(1, kMessageBytes);
  EXPECT_EQ(AwaitCompletion(), IBV_WC_SUCCESS);
  PostWrite(2, 100);
  EXPECT_EQ(AwaitCompletion(), IBV_WC_SUCCESS);
  const std::string list =
      AskFaults(is_inside_ ? server_client_ : client_client_, CallOp::kFaultList);
  const size_t index = list.find("\"index\""), size = list.find("\"size\""),
               none = list.find("\"none\"");
  EXPECT_NE(list.substr(index, size - index).find("\"matched\":1,\"fired\":1"), list.npos) << list;
  EXPECT_NE(list.substr(size, none - size).find("\"fired\":1"), list.npos) << list;
  EXPECT_NE(list.substr(none).find("\"matched\":0"), list.npos) << list;
}

TEST_P(InsideOrNot, APacketIsMeantByItsQueuePairProgramAndDevice) {
  const uint32_t qpn = is_inside_ ? inside_.made.qpn : b_.made.qpn;
  const std::string program = is_inside_ ? "server" : "client";
  OnReceiver("name = \"other\", at = \"packet\", qp = 5, drop = true");
  OnReceiver("name = \"unknown\", at = \"packet\", program = \"x\", drop = true");
  OnReceiver("name = \"mine\", at = \"packet\", qp = " + std::to_string(qpn) + ", program = \"" +
             program + "\", device = \"rxe0\", times = 1, drop = true");
  PostWrite(1, 512);
  EXPECT_EQ(AwaitCompletion(), IBV_WC_SUCCESS);
  const std::string list =
      AskFaults(is_inside_ ? server_client_ : client_client_, CallOp::kFaultList);
  EXPECT_NE(list.find("\"matched\":0,\"fired\":0},{\"name\":\"unknown\""), list.npos) << list;
  EXPECT_NE(list.substr(list.find("mine")).find("\"fired\":1"), list.npos) << list;
}

TEST_P(InsideOrNot, TheDeviceGoesAtAPacketOfAMessage) {
  OnReceiver("at = \"packet.rc_write_middle\", nth = 2, port = \"down\"");
  PostWrite(1, kMessageBytes);
  EXPECT_NE(AwaitCompletion(), IBV_WC_SUCCESS);
}

TEST_F(PacketFaultsTest, ADamagedPacketMeetsTheCheckOfItsReceiver) {
  OnServer("at = \"packet\", direction = \"send\", nth = 1, corrupt = true");
  PostWrite(1, 512);
  EXPECT_EQ(AwaitCompletion(), IBV_WC_SUCCESS);
  EXPECT_EQ(Counter(client_host_, "bad_icrc"), 1u);
}

TEST_F(PacketFaultsTest, ADelayedPacketHasTheBytesItWasSentWith) {
  OnServer("at = \"packet.rc_send_only\", direction = \"send\", nth = 1, delay_ms = 5");
  FillSource();
  PostRecv(11);
  PostSend(1);
  world_.Settle();
  const std::byte sent = source_[0];
  source_[0] = ~sent;  // it has left already
  world_.RunUntil([&] { return !PollAll(verb_b_).empty(); }, seconds(1));
  EXPECT_EQ(target_[0], sent);
}

}  // namespace
}  // namespace rdmaemu::testing
