// Fault rules at packets, between two hosts and inside one, when sent and when received. For every
// fault of a packet on a reliable connection, the message arrives whole or its request fails.
#include "emulator/host/faults/packets.h"

#include <gtest/gtest.h>

#include "emulator/host/testing/fault_world.h"
#include "emulator/transport/train_form.h"

namespace rdmaemu::testing {
namespace {

using std::chrono::seconds;

constexpr uint32_t kMessageBytes = 8 * 1024;  // eight packets

class PacketFaultsTest : public FaultQps {
 protected:
  // Moves both queue pairs to the server's host.
  void StayInside() {
    is_inside_ = true;
    a_ = verb_a_.CreateQp(IBV_QPT_RC, 32);
    inside_ = neighbour_.CreateQp(IBV_QPT_RC, 32);
    verb_a_.ConnectRc(a_, "127.0.0.1", inside_.made.qpn);
    neighbour_.ConnectRc(inside_, "127.0.0.1", a_.made.qpn);
    mr_b_ = neighbour_.Register(target_.data(), kBytes,
                                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  }
  // Adds a rule on the host that receives the requests.
  void OnReceiver(const std::string& rule) { is_inside_ ? OnServer(rule) : OnClient(rule); }
  void FillSource() {
    for (size_t i = 0; i < source_.size(); i++)
      source_[i] = static_cast<std::byte>(i * 7 + i / 256);
  }
  // Returns the status of the one pending request.
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
  // The fault must not affect the next request.
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
  EXPECT_NE(list.find("\"matched\":0,\"fired\":0,\"seen\":[{\"at\":\"packet.rc_write_only\""),
            list.npos)
      << list;
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
  source_[0] = ~sent;  // the packet was sent already
  world_.RunUntil([&] { return !PollAll(verb_b_).empty(); }, seconds(1));
  EXPECT_EQ(target_[0], sent);
}

// ---- multicast

constexpr uint32_t kQkey = 0x11;
const NetAddress kGroupAddress = *NetAddress::Parse("239.1.1.1");

// A program with a UD queue pair. It sends to the group, and receives the group's datagrams after a
// join.
class GroupProgram {
 public:
  explicit GroupProgram(Client& client, uint32_t device_index = 0)
      : verb_(client, 64, device_index), cm_(client), qp_(verb_.CreateQp(IBV_QPT_UD)) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qkey = kQkey;
    int failed =
        verb_.Modify(qp_, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, attr);
    attr.qp_state = IBV_QPS_RTR;
    failed |= verb_.Modify(qp_, IBV_QP_STATE, attr);
    attr.qp_state = IBV_QPS_RTS;
    failed |= verb_.Modify(qp_, IBV_QP_STATE | IBV_QP_SQ_PSN, attr);
    CreateAhIn in{};
    in.pd = verb_.pd;
    in.attr.is_global = in.attr.port_num = 1;
    in.attr.grh.sgid_index = 1;
    in.attr.grh.dgid = kGroupAddress.ToGid();
    failed |= client.Call(CallOp::kCreateAh, in, ah_);
    EXPECT_EQ(failed, 0);
  }
  void Join(const std::string& local) {
    const uint32_t id = cm_.CreateId(RDMA_PS_UDP);
    cm_.Do(RDMA_USER_CM_CMD_BIND_IP, rdma_ucm_bind_ip{0, Ipv4Socket(local, 0), id});
    rdma_ucm_join_ip_mcast join{};
    join.addr = Ipv4Socket("239.1.1.1", 0);
    join.id = id;
    cm_.Do(RDMA_USER_CM_CMD_JOIN_IP_MCAST, join);
    McastIn in{};
    in.qp = qp_.made.handle;
    in.gid = kGroupAddress.ToGid();
    EXPECT_EQ(verb_.client.Call(CallOp::kAttachMcast, in), 0);
    for (uint64_t i = 0; i < kReceives; i++) {
      verb_.PostRecv(qp_, i, bytes_.data() + i * kRoom, kRoom, mr_.lkey);
    }
  }
  void Send(uint8_t value) {
    std::byte& from = bytes_[kReceives * kRoom + value];
    from = std::byte{value};
    verb_.PostSend(qp_, kSends, IBV_WR_SEND, &from, 1, mr_.lkey, [&](PlainSend& wqe) {
      wqe.wr.wr.ud.remote_qpn = 0xffffff;
      wqe.wr.wr.ud.remote_qkey = kQkey;
      wqe.wr.wr.ud.ah_num = ah_.handle;
    });
  }
  // Returns the values received since the last call, in order.
  std::vector<int> Received() {
    std::vector<int> values;
    for (ib_uverbs_wc wc; verb_.Poll(wc);) {
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
      if (wc.wr_id == kSends) continue;
      values.push_back(static_cast<int>(bytes_[wc.wr_id * kRoom + kGrhBytes]));
    }
    return values;
  }

 private:
  static constexpr uint64_t kReceives = 8, kRoom = 64, kSends = 100, kGrhBytes = 40;

  Verb verb_;
  CmProgram cm_;
  Verb::Qp qp_;
  HandleOut ah_{};
  std::vector<std::byte> bytes_ = std::vector<std::byte>(1024);
  MrOut mr_ = verb_.Register(bytes_.data(), bytes_.size(), IBV_ACCESS_LOCAL_WRITE);
};

class MulticastFaultsTest : public FaultWorld {
 protected:
  void Let(Duration time) {
    world_.RunUntil([] { return false; }, time);
  }
  uint64_t HeldBy(Client& client) {
    const std::string list = AskFaults(client, CallOp::kFaultList);
    const size_t at = list.find("\"held\":");
    return at == list.npos ? UINT64_MAX : std::stoull(list.substr(at + 7));
  }
};

struct Place {
  const char* name;
  bool has_member;  // the sender's host, else the other
  bool at_sender;   // the rule's host
  const char* direction;
};
constexpr Place kPlaces[] = {{"inside_sent", true, true, "send"},
                             {"inside_received", true, true, "receive"},
                             {"wire_sent", false, true, "send"},
                             {"wire_received", false, false, "receive"}};

class EachPlace : public MulticastFaultsTest, public ::testing::WithParamInterface<Place> {
 protected:
  EachPlace() {
    member_.Join(GetParam().has_member ? "127.0.0.1" : "127.0.0.2");
    world_.Settle();
  }
  void Rule(const std::string& rule) {
    AddRule(where_,
            "name = \"r\", direction = \"" + std::string(GetParam().direction) + "\", " + rule);
  }
  void Send(uint8_t value) {
    sender_.Send(value);
    world_.Settle();
  }

  Client& where_ = GetParam().at_sender ? server_client_ : client_client_;
  Client others_{world_, GetParam().has_member ? server_host_ : client_host_, "member"};
  GroupProgram sender_{server_client_}, member_{others_};
};
INSTANTIATE_TEST_SUITE_P(, EachPlace, ::testing::ValuesIn(kPlaces),
                         [](const auto& tested) { return tested.param.name; });

TEST_P(EachPlace, ADelayedMulticastPacketComesToEachMemberOnce) {
  Rule("at = \"packet.ud_send_only\", delay_ms = 5");
  Send(1);
  EXPECT_EQ(member_.Received(), std::vector<int>{});
  Let(seconds(1));
  EXPECT_EQ(member_.Received(), std::vector<int>{1});
}

TEST_P(EachPlace, AHeldMulticastPacketComesWhenItIsLetGoWhateverElseHasGone) {
  Rule("at = \"packet.ud_send_only\", hold = true");
  Send(1);
  const uint64_t held = HeldBy(where_);
  EXPECT_GT(held, 0u);
  Verb other(where_);
  const Verb::Qp gone = other.CreateQp(IBV_QPT_RC);
  DestroyOut out{};
  EXPECT_EQ(where_.Call(CallOp::kDestroyQp, HandleIn{gone.made.handle, 0}, out), 0);
  EXPECT_EQ(where_.Call(CallOp::kDestroyCq, HandleIn{other.cq.handle, 0}, out), 0);
  EXPECT_EQ(HeldBy(where_), held);
  EXPECT_EQ(member_.Received(), std::vector<int>{});
  AskFaults(where_, CallOp::kFaultRelease, "r");
  Let(seconds(0));
  EXPECT_EQ(member_.Received(), std::vector<int>{1});
}

TEST_P(EachPlace, ADoubledMulticastPacketComesThatOften) {
  Rule("at = \"packet.ud_send_only\", duplicate = 2");
  Send(1);
  EXPECT_EQ(member_.Received(), (std::vector<int>{1, 1, 1}));
}

TEST_P(EachPlace, AMulticastPacketIsOvertakenByTheNextOnItsWay) {
  Rule("at = \"packet.ud_send_only\", index = 1, reorder = 1");
  Send(1);
  EXPECT_EQ(member_.Received(), std::vector<int>{});
  Send(2);
  EXPECT_EQ(member_.Received(), (std::vector<int>{2, 1}));
}

TEST_P(EachPlace, AMulticastPacketComesAfterTheLatencyOfItsLink) {
  AddRule(where_, "at = \"link\", latency_ms = 5");
  Send(1);
  EXPECT_EQ(member_.Received(), std::vector<int>{});
  Let(seconds(1));
  EXPECT_EQ(member_.Received(), std::vector<int>{1});
}

TEST_P(EachPlace, AMulticastPacketComesWhenItsLinkLetsGo) {
  AddRule(where_, "name = \"r\", at = \"link\", hold = true");
  Send(1);
  EXPECT_EQ(member_.Received(), std::vector<int>{});
  AskFaults(where_, CallOp::kFaultRelease, "r");
  Let(seconds(0));
  EXPECT_EQ(member_.Received(), std::vector<int>{1});
}

TEST_F(MulticastFaultsTest, WhatIsHeldForAGroupGoesWithTheLastWhoTakesIt) {
  OnClient("at = \"packet.ud_send_only\", hold = true");
  GroupProgram sender(server_client_);
  Client first(world_, client_host_), second(world_, client_host_);
  for (Client* each : {&first, &second}) GroupProgram(*each).Join("127.0.0.2");
  sender.Send(1);
  world_.Settle();
  EXPECT_EQ(HeldBy(client_client_), 1u);
  first.Kill();
  EXPECT_EQ(HeldBy(client_client_), 1u);
  second.Kill();
  EXPECT_EQ(HeldBy(client_client_), 0u);
  EXPECT_FALSE(client_host_.AwaitsApplication(world_.now));
}

TEST_F(MulticastFaultsTest, AKeptPacketIsForTheDeviceByWhichItCame) {
  HostConfig config;
  config.name = "two";
  config.seed = 3;
  for (const char* address : {"127.0.0.3", "127.0.0.4"}) {
    HostAddress own;
    own.address = *NetAddress::Parse(address);
    config.devices.push_back({address[8] == '3' ? "rxe0" : "rxe1", *BuiltInProfile("rxe"), {own}});
  }
  Client client(world_, world_.AddHost(config));
  GroupProgram sender(server_client_), first(client, 0), second(client, 1);
  first.Join("127.0.0.3");
  second.Join("127.0.0.4");
  AddRule(client, "at = \"packet.ud_send_only\", delay_ms = 5");
  sender.Send(1);  // the world delivers it to the first address
  Let(seconds(1));
  EXPECT_EQ(first.Received(), std::vector<int>{1});
  EXPECT_EQ(second.Received(), std::vector<int>{});
}

// The network frees an address's port when the host closes the address. All packets arrive in one
// burst.
class BurstTest : public PacketFaultsTest {
 protected:
  // Sends a message and captures its datagrams.
  void Capture() {
    world_.SetFilter([&](const World::Datagram& datagram) {
      burst_.push_back(datagram);
      return false;
    });
    PostWrite(1, kMessageBytes);
    world_.Settle();
    world_.SetFilter([](const World::Datagram&) { return true; });
  }
  // Delivers them to the client's host, from a port that is freed with its address.
  void DeliverFromAPort() {
    struct Port {
      wire::UdpFlow flow;
      NetAddress address;
    };
    auto port = std::make_unique<Port>(Port{burst_.at(0).flow, burst_.at(0).flow.destination});
    world_.on_close = [&](const NetAddress&) { port.reset(); };
    std::vector<std::span<const std::byte>> payloads;
    for (const World::Datagram& each : burst_) payloads.emplace_back(each.bytes);
    client_host_.Receive(world_.now, port->flow, payloads, &port->address);
    EXPECT_EQ(port, nullptr) << "the rule did not fire";
    world_.on_close = {};
  }
  std::vector<World::Datagram> burst_;
};

TEST_F(BurstTest, AnAddressThatARuleRemovesTakesTheRestOfTheBurstWithIt) {
  FillSource();
  Capture();
  ASSERT_EQ(burst_.size(), 8u);
  OnClient(
      "at = \"packet.rc_write_middle\", nth = 2, remove_address = \"127.0.0.2\", "
      "return_after_ms = 1");
  OnClient("at = \"packet.rc_write_last\", first = 1, delay_ms = 2");
  DeliverFromAPort();
  EXPECT_EQ(Counter(client_host_, "not_ours"), 5u);
  // The address returns, and the lost packets are retransmitted.
  EXPECT_EQ(AwaitCompletion(), IBV_WC_SUCCESS);
  EXPECT_TRUE(HasArrived(kMessageBytes));
}

// Returns the form of the train that the datagrams are (transport/train_form.h).
std::vector<std::byte> FormOf(const std::vector<World::Datagram>& burst) {
  std::vector<std::byte> payload;
  transport::Train train;
  for (const World::Datagram& each : burst) {
    const auto packet = wire::Parse(each.bytes);
    if (payload.empty()) {
      train.headers = packet->headers;
      train.mtu_bytes = static_cast<uint32_t>(packet->payload.size());
    }
    payload.insert(payload.end(), packet->payload.begin(), packet->payload.end());
    train.headers.ack_request = packet->headers.ack_request;
  }
  train.headers.operation = transport::WholeOperation(train.headers.operation);
  train.packets = static_cast<uint32_t>(burst.size());
  train.is_bytes = true;
  train.bytes = payload;
  std::vector<std::byte> form(transport::FormBytes(train));
  std::ranges::copy(payload, transport::EmitFormHead(train, form).begin());
  return form;
}

TEST_F(BurstTest, ARuleSeesEachPacketOfATrain) {
  FillSource();
  Capture();
  const std::vector<std::byte> form = FormOf(burst_);
  OnClient("at = \"packet.rc_write_middle\", nth = 2, pause_ms = 5");
  const std::span<const std::byte> bytes = form;
  const Time begin = world_.now;
  const uint64_t before = Counter(client_host_, "datagrams_received");
  client_host_.Receive(world_.now, burst_.at(0).flow, {&bytes, 1}, nullptr, WireForm::kTrains);
  EXPECT_FALSE(HasArrived(kMessageBytes)) << "the pause began in the middle of the train";
  EXPECT_EQ(AwaitCompletion(), IBV_WC_SUCCESS);
  EXPECT_EQ(world_.now, begin + std::chrono::milliseconds(5)) << "nothing had to be repeated";
  EXPECT_EQ(Counter(client_host_, "datagrams_received") - before, burst_.size());
  EXPECT_TRUE(HasArrived(kMessageBytes));
}

TEST_F(BurstTest, WithoutARuleATrainHasTheEffectOfItsPackets) {
  FillSource();
  Capture();
  const std::vector<std::byte> form = FormOf(burst_);
  const std::span<const std::byte> bytes = form;
  client_host_.Receive(world_.now, burst_.at(0).flow, {&bytes, 1}, nullptr, WireForm::kTrains);
  EXPECT_TRUE(HasArrived(kMessageBytes));
  EXPECT_EQ(AwaitCompletion(), IBV_WC_SUCCESS);
}

TEST_F(BurstTest, APauseKeepsTheRestOfTheBurst) {
  FillSource();
  Capture();
  OnClient("at = \"packet.rc_write_middle\", nth = 2, pause_ms = 5");
  std::vector<std::span<const std::byte>> payloads;
  for (const World::Datagram& each : burst_) payloads.emplace_back(each.bytes);
  const Time begin = world_.now;
  client_host_.Receive(world_.now, burst_.at(0).flow, payloads);
  EXPECT_FALSE(HasArrived(kMessageBytes));
  EXPECT_EQ(AwaitCompletion(), IBV_WC_SUCCESS);
  EXPECT_EQ(world_.now, begin + std::chrono::milliseconds(5)) << "nothing had to be repeated";
}

}  // namespace
}  // namespace rdmaemu::testing
