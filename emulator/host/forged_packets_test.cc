// Packets of strangers. A packet from another address than the connection's must not write memory,
// complete a request or cause a response. It must be counted. This holds even when the stranger
// knows queue pair number, PSN, rkey and address. Each test first shows that its packet is valid:
// the packet works from the right address.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "emulator/host/testing/world.h"
#include "emulator/wire/testing/datagram.h"

namespace rdmaemu {
namespace {

using testing::Client;
using testing::kAllAccess;
using testing::Verb;
using testing::World;
using wire::Operation;
using wire::PacketHeaders;
using wire::TransportClass;

constexpr const char *kVictim = "127.0.1.1", *kPeer = "127.0.1.2", *kStranger = "127.0.1.9";

// A host with a queue pair of each kind, whose peer never sends, and with memory that anyone with
// the key may write.
class Forged : public ::testing::Test {
 protected:
  Forged()
      : host(world.AddHost("victim", kVictim)),
        client(world, host),
        verb(client),
        rc(verb.CreateQp(IBV_QPT_RC)),
        uc(verb.CreateQp(IBV_QPT_UC)),
        ud(verb.CreateQp(IBV_QPT_UD)),
        idle(verb.CreateQp(IBV_QPT_RC)),
        memory(256),
        mr(verb.Register(memory.data(), memory.size(), kAllAccess)) {
    world.SetFilter([this](const World::Datagram&) { return answers++, false; });
    verb.ConnectRc(rc, kPeer, 77);
    ReadyUc();
    ReadyUd();
    for (Verb::Qp* qp : {&rc, &uc, &ud, &idle}) {
      verb.PostRecv(*qp, 1, memory.data(), static_cast<uint32_t>(memory.size()), mr.lkey);
    }
  }

  void ReadyUc() {
    ibv_qp_attr attr = Init();
    ASSERT_EQ(verb.Modify(uc, kInitMask | IBV_QP_ACCESS_FLAGS, attr), 0);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = 77;
    attr.ah_attr.is_global = attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.sgid_index = 1;
    attr.ah_attr.grh.dgid = NetAddress::Parse(kPeer)->ToGid();
    ASSERT_EQ(
        verb.Modify(
            uc, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, attr),
        0);
  }
  void ReadyUd() {
    ibv_qp_attr attr = Init();
    attr.qkey = kQkey;
    ASSERT_EQ(verb.Modify(ud, kInitMask | IBV_QP_QKEY, attr), 0);
    attr.qp_state = IBV_QPS_RTR;
    ASSERT_EQ(verb.Modify(ud, IBV_QP_STATE, attr), 0);
  }
  void ReadyIdleTo(ibv_qp_state state) {
    if (state == IBV_QPS_RESET) return;
    ASSERT_EQ(verb.Modify(idle, kInitMask | IBV_QP_ACCESS_FLAGS, Init()), 0);
  }
  static ibv_qp_attr Init() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = kAllAccess;
    return attr;
  }

  PacketHeaders Write(const Verb::Qp& qp, TransportClass transport = TransportClass::kRc) const {
    PacketHeaders headers;
    headers.transport = transport;
    headers.operation = Operation::kWriteOnly;
    headers.ack_request = transport == TransportClass::kRc;
    headers.destination_qpn = qp.made.qpn;
    headers.remote_address = reinterpret_cast<uint64_t>(memory.data());
    headers.rkey = mr.rkey;
    headers.dma_length = sizeof kPayload;
    return headers;
  }
  PacketHeaders Send(const Verb::Qp& qp, TransportClass transport) const {
    PacketHeaders headers;
    headers.transport = transport;
    headers.operation = Operation::kSendOnly;
    headers.destination_qpn = qp.made.qpn;
    headers.qkey = kQkey;
    headers.source_qpn = 77;
    return headers;
  }

  void Arrive(const char* from, const PacketHeaders& headers, bool with_payload = true) {
    const wire::UdpFlow flow{*NetAddress::Parse(from), *NetAddress::Parse(kVictim), 4791, 4791};
    host.Receive(world.now, flow,
                 wire::MakeDatagram(flow, headers,
                                    with_payload ? std::as_bytes(std::span(kPayload))
                                                 : std::span<const std::byte>{}));
    world.Settle();
  }
  // Checks that nothing happened except that the packet was counted under `reason`.
  void ExpectDropped(const char* reason) {
    EXPECT_EQ(memory, std::vector<uint8_t>(memory.size()));
    EXPECT_EQ(answers, 0);
    ib_uverbs_wc wc;
    EXPECT_FALSE(verb.Poll(wc)) << wc.status;
    EXPECT_EQ(Dropped(reason), ++expected[reason]) << reason;
  }
  int Dropped(const char* reason) const {
    return nlohmann::json::parse(host.StatusJson())["counters"]["dropped"][reason];
  }

  static constexpr int kInitMask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  static constexpr uint32_t kQkey = 0x5eed;
  static constexpr uint8_t kPayload[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  World world;
  Host& host;
  Client client;
  Verb verb;
  Verb::Qp rc, uc, ud, idle;
  std::vector<uint8_t> memory;
  MrOut mr;
  int answers = 0;
  std::map<std::string, int> expected;
};

TEST_F(Forged, AWriteFromTheConnectionsAddressIsWrittenAndAnswered) {
  Arrive(kPeer, Write(rc));
  EXPECT_TRUE(std::equal(std::begin(kPayload), std::end(kPayload), memory.begin()));
  EXPECT_EQ(answers, 1);
}

TEST_F(Forged, AStrangersWriteWithTheRightNumbersAndKeyIsDropped) {
  Arrive(kStranger, Write(rc));
  ExpectDropped("wrong_address");
  // The connection is unaffected: it still expects its own next packet.
  Arrive(kPeer, Write(rc));
  EXPECT_EQ(memory[7], 8);
}

TEST_F(Forged, AStrangersSendReadAndAtomicAreDropped) {
  Arrive(kStranger, Send(rc, TransportClass::kRc));
  ExpectDropped("wrong_address");
  PacketHeaders read = Write(rc);
  read.operation = Operation::kReadRequest;
  Arrive(kStranger, read, false);
  ExpectDropped("wrong_address");
  for (const Operation atomic : {Operation::kCompareSwap, Operation::kFetchAdd}) {
    PacketHeaders headers = Write(rc);
    headers.operation = atomic;
    headers.swap_add = 1;
    Arrive(kStranger, headers, false);
    ExpectDropped("wrong_address");
  }
}

TEST_F(Forged, AStrangersAnswersCompleteNothing) {
  verb.PostSend(rc, 5, IBV_WR_SEND, memory.data(), 8, mr.lkey);
  world.Settle();
  answers = 0;
  PacketHeaders ack;
  ack.operation = Operation::kAcknowledge;
  ack.destination_qpn = rc.made.qpn;
  ack.syndrome = wire::kAethUnlimitedCredits;
  ack.msn = 1;
  Arrive(kStranger, ack, false);
  ExpectDropped("wrong_address");
  ack.syndrome = static_cast<uint8_t>(wire::AckKind::kNak) |
                 static_cast<uint8_t>(wire::NakCode::kRemoteAccess);
  Arrive(kStranger, ack, false);
  ExpectDropped("wrong_address");
  PacketHeaders response = ack;
  response.operation = Operation::kReadResponseOnly;
  Arrive(kStranger, response);
  ExpectDropped("wrong_address");
}

TEST_F(Forged, UcTakesItsConnectionsAddressAlone) {
  Arrive(kStranger, Write(uc, TransportClass::kUc));
  ExpectDropped("wrong_address");
  Arrive(kStranger, Send(uc, TransportClass::kUc));
  ExpectDropped("wrong_address");
  Arrive(kPeer, Write(uc, TransportClass::kUc));
  EXPECT_EQ(memory[7], 8);
}

TEST_F(Forged, UdTakesNothingWithoutItsQkeyAndNeverAWrite) {
  PacketHeaders send = Send(ud, TransportClass::kUd);
  send.qkey = kQkey + 1;
  Arrive(kStranger, send);
  ExpectDropped("wrong_qkey");
  Arrive(kStranger, Write(ud));
  ExpectDropped("bad_opcode");
  Arrive(kStranger, Write(ud, TransportClass::kUc));
  ExpectDropped("bad_opcode");
  Arrive(kStranger, Send(ud, TransportClass::kUd));
  ib_uverbs_wc wc;
  ASSERT_TRUE(verb.Poll(wc)) << "the Q_Key is all that UD asks for";
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.byte_len, 40 + sizeof kPayload);
}

TEST_F(Forged, AQueuePairThatIsNotConnectedTakesNothing) {
  Arrive(kPeer, Write(idle));
  ExpectDropped("wrong_state");
  ReadyIdleTo(IBV_QPS_INIT);
  Arrive(kPeer, Write(idle));
  ExpectDropped("wrong_state");
}

TEST_F(Forged, DatagramsDoNotReachConnectedQueuePairsNorTheOtherWayRound) {
  Arrive(kPeer, Send(rc, TransportClass::kUd));
  ExpectDropped("bad_opcode");
  Arrive(kPeer, Send(rc, TransportClass::kUc));
  ExpectDropped("bad_opcode");
  Arrive(kPeer, Send(uc, TransportClass::kRc));
  ExpectDropped("bad_opcode");
}

TEST_F(Forged, ANumberThatNobodyHasIsCounted) {
  PacketHeaders write = Write(rc);
  write.destination_qpn ^= 1;
  while (write.destination_qpn == uc.made.qpn || write.destination_qpn == ud.made.qpn ||
         write.destination_qpn == idle.made.qpn) {
    write.destination_qpn ^= 2;
  }
  Arrive(kPeer, write);
  ExpectDropped("no_qp");
}

// This holds even from the right address. The key has 32 bits, and one wrong guess ends the
// connection.
TEST_F(Forged, OneWrongKeyEndsTheConnectionSoThatNobodyTriesTwice) {
  PacketHeaders write = Write(rc);
  write.rkey ^= 1;
  Arrive(kPeer, write);
  EXPECT_EQ(memory, std::vector<uint8_t>(memory.size()));
  EXPECT_EQ(answers, 1) << "a NAK";
  Arrive(kPeer, Write(rc));
  EXPECT_EQ(memory, std::vector<uint8_t>(memory.size()));
}

TEST(Keys, AreNotGuessedFromOthers) {
  World world;
  Host& host = world.AddHost("a", "127.0.1.1");
  Client client(world, host);
  Verb verb(client);
  std::vector<uint8_t> memory(64);
  constexpr int kKeys = 512;
  // How often each bit differs between a key and the next, which is about every second time.
  std::array<int, 32> changes{};
  uint32_t last = 0;
  for (int i = 0; i < kKeys; i++) {
    const uint32_t key = verb.Register(memory.data(), memory.size(), kAllAccess).rkey;
    for (uint32_t bit = 0; bit < 32; bit++) changes[bit] += (key ^ last) >> bit & 1;
    last = key;
  }
  for (const int count : changes) {
    EXPECT_GT(count, kKeys / 2 - 90);
    EXPECT_LT(count, kKeys / 2 + 90);
  }
}

// Two incarnations of a host with the same name and address share no numbers. The same seed repeats
// them.
TEST(Keys, DependOnTheSeedAlone) {
  const auto numbers = [](uint64_t seed) {
    World world;
    Host& host = world.AddHost("a", "127.0.1.1", *BuiltInProfile("rxe"), seed);
    Client client(world, host);
    Verb verb(client);
    std::vector<uint32_t> all(1);
    for (int i = 0; i < 4; i++) {
      all.push_back(verb.CreateQp(IBV_QPT_RC).made.qpn);
      all.push_back(verb.Register(all.data(), 4, kAllAccess).rkey);
    }
    all.push_back(client.hello.group_token[0] << 8 | client.hello.group_token[15]);
    return all;
  };
  const std::vector<uint32_t> first = numbers(1), again = numbers(1), other = numbers(2);
  EXPECT_EQ(first, again);
  for (size_t i = 1; i < first.size(); i++) EXPECT_NE(first[i], other[i]) << i;
}

}  // namespace
}  // namespace rdmaemu
