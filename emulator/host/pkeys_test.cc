// P_Key tables: what programs see of them, which packets are accepted, and how connection
// management handles a missing partition. Without a change every entry 0 is 0xffff, and P_Keys have
// no visible effect.
#include <gtest/gtest.h>

#include "emulator/host/testing/fault_world.h"
#include "emulator/wire/packet.h"

namespace rdmaemu::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint16_t kFull = 0x8001, kLimited = 0x0001;

Profile WithTable() {
  Profile profile = *BuiltInProfile("rxe");
  profile.port.pkey_tbl_len = 4;
  profile.pkeys = {0xffff, kFull, 0, 0};
  profile.checks_pkey_index = true;
  profile.rc.retry_count_7_is_endless = false;
  return profile;
}

class PkeysTest : public ::testing::Test {
 protected:
  PkeysTest()
      : here_(world_.AddHost("here", "127.0.0.1", profile_)),
        there_(world_.AddHost("there", "127.0.0.2", profile_)),
        a_client_(world_, here_, "a"),
        b_client_(world_, there_, "b") {}

  int Set(Client& client, uint32_t index, uint32_t pkey, const char* device = "rxe0") {
    ChangeDeviceIn in{};
    in.change = static_cast<uint32_t>(DeviceChange::kSetPkey);
    std::strcpy(in.device, device);
    in.pkey_index = index;
    in.pkey = pkey;
    return client.Call(CallOp::kChangeDevice, in);
  }
  // Returns the P_Key in host byte order, or a negative errno.
  static int Pkey(Verb& verb, int index) {
    QueryPkeyOut out{};
    const int error =
        verb.client.Call(CallOp::kQueryPkey, QueryPkeyIn{verb.context, 1, index, 0}, out);
    return error != 0 ? -error : ntohs(out.pkey_be);
  }
  static std::vector<int> AsyncTypesOf(Verb& verb) {
    std::vector<int> types;
    GetAsyncEventOut out{};
    while (verb.client.Call(CallOp::kGetAsyncEvent, HandleIn{verb.context, 0}, out) == 0) {
      types.push_back(out.type);
    }
    return types;
  }
  static uint64_t Counter(Host& host, const std::string& name) {
    const std::string status = host.StatusJson(), key = "\"" + name + "\":";
    return std::stoull(status.substr(status.find(key) + key.size()));
  }
  void Connect() {
    qp_a_ = a_.CreateQp(IBV_QPT_RC);
    qp_b_ = b_.CreateQp(IBV_QPT_RC);
    a_.ConnectRc(qp_a_, "127.0.0.2", qp_b_.made.qpn);
    b_.ConnectRc(qp_b_, "127.0.0.1", qp_a_.made.qpn);
  }
  uint32_t StatusOfSend() {
    b_.PostRecv(qp_b_, 11, bytes_.data(), 64, mr_b_.lkey);
    a_.PostSend(qp_a_, 1, IBV_WR_SEND, bytes_.data(), 64, mr_a_.lkey);
    ib_uverbs_wc wc{};
    EXPECT_TRUE(world_.RunUntil([&] { return a_.Poll(wc); }, seconds(100))) << "no completion";
    return wc.status;
  }
  int DoCm(CmProgram& program, uint32_t command, const auto& in) {
    const CmCall<std::decay_t<decltype(in)>> call{program.channel, 0, in};
    return program.client.CallBytes(CmProgram::Op(command), &call, sizeof call).error;
  }
  uint32_t Resolved(CmProgram& program, uint16_t port_space) {
    const uint32_t id = program.CreateId(port_space);
    program.Do(RDMA_USER_CM_CMD_RESOLVE_IP,
               rdma_ucm_resolve_ip{{}, Ipv4Socket("127.0.0.2", kPort), id, 2000});
    program.Event();
    program.Do(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 2000});
    program.Event();
    return id;
  }

  static constexpr uint16_t kPort = 7471;
  const Profile profile_ = WithTable();
  World world_;
  Host &here_, &there_;
  Client a_client_, b_client_;
  Verb a_{a_client_}, b_{b_client_};
  Verb::Qp qp_a_, qp_b_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(64);
  MrOut mr_a_ = a_.Register(bytes_.data(), bytes_.size(), IBV_ACCESS_LOCAL_WRITE);
  MrOut mr_b_ = b_.Register(bytes_.data(), bytes_.size(), IBV_ACCESS_LOCAL_WRITE);
};

TEST_F(PkeysTest, TheTableIsTheProfilesUntilAnEntryChangesAndContextsHearOfThat) {
  Verb second(a_client_);
  EXPECT_EQ(Pkey(a_, 0), 0xffff);
  EXPECT_EQ(Pkey(a_, 1), kFull);
  EXPECT_EQ(Pkey(a_, 3), 0);
  EXPECT_EQ(Pkey(a_, 4), -ENOENT);
  EXPECT_EQ(Set(a_client_, 2, 0x8002), 0);
  EXPECT_EQ(Pkey(a_, 2), 0x8002);
  EXPECT_EQ(AsyncTypesOf(a_), std::vector<int>{IBV_EVENT_PKEY_CHANGE});
  EXPECT_EQ(AsyncTypesOf(second), std::vector<int>{IBV_EVENT_PKEY_CHANGE});
  EXPECT_EQ(Set(a_client_, 2, 0x8002), 0);
  EXPECT_TRUE(AsyncTypesOf(a_).empty()) << "nothing has changed";
  EXPECT_TRUE(AsyncTypesOf(b_).empty()) << "another host's";
}

TEST_F(PkeysTest, AnEntryThatIsNotThereIsRefused) {
  EXPECT_EQ(Set(a_client_, 4, kFull), EINVAL);
  EXPECT_EQ(Set(a_client_, 0, 0x10000), EINVAL);
  EXPECT_EQ(Set(a_client_, 0, kFull, "rxe7"), ENODEV);
}

TEST_F(PkeysTest, ModifyQpRefusesAnIndexBeyondTheTableWhereTheDeviceChecksIt) {
  const Verb::Qp qp = a_.CreateQp(IBV_QPT_RC);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.pkey_index = 4;
  const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  EXPECT_EQ(a_.Modify(qp, mask, attr), EINVAL);
  attr.pkey_index = 3;
  EXPECT_EQ(a_.Modify(qp, mask, attr), 0);

  World plain;
  Host& rxe = plain.AddHost("rxe", "127.0.0.1");
  Client client(plain, rxe);
  Verb verb(client);
  attr.pkey_index = 5;
  EXPECT_EQ(verb.Modify(verb.CreateQp(IBV_QPT_RC), mask, attr), 0) << "rxe takes any";
}

TEST_F(PkeysTest, PacketsCarryTheEntryOfTheirQueuePairBothWays) {
  Connect();
  Set(a_client_, 0, kFull);
  Set(b_client_, 0, kLimited);
  std::set<std::pair<NetAddress, uint16_t>> seen;
  world_.SetFilter([&](const World::Datagram& datagram) {
    seen.insert({datagram.flow.source, wire::Parse(datagram.bytes)->headers.pkey});
    return true;
  });
  EXPECT_EQ(StatusOfSend(), IBV_WC_SUCCESS) << "one full member is enough";
  EXPECT_EQ(seen, (std::set<std::pair<NetAddress, uint16_t>>{
                      {*NetAddress::Parse("127.0.0.1"), kFull},
                      {*NetAddress::Parse("127.0.0.2"), kLimited}}));
}

TEST_F(PkeysTest, TwoLimitedMembersOrTwoPartitionsOrNoneDoNotTalk) {
  const std::pair<uint16_t, uint16_t> kPairs[] = {
      {kLimited, kLimited}, {kFull, 0xffff}, {0, 0}, {0x8000, 0x8000}};
  for (const auto& [one, other] : kPairs) {
    Connect();
    Set(a_client_, 0, one);
    Set(b_client_, 0, other);
    const uint64_t before = Counter(there_, "wrong_pkey");
    EXPECT_EQ(StatusOfSend(), IBV_WC_RETRY_EXC_ERR) << one << " and " << other;
    EXPECT_GT(Counter(there_, "wrong_pkey"), before);
  }
  QueryPortOut port{};
  EXPECT_EQ(b_client_.Call(CallOp::kQueryPort, QueryPortIn{b_.context, 1}, port), 0);
  EXPECT_EQ(port.attr.bad_pkey_cntr, Counter(there_, "wrong_pkey"));
}

TEST_F(PkeysTest, NothingBeginsInADefaultPartitionThatIsNotThere) {
  CmProgram program(a_client_);
  const uint32_t connecting = Resolved(program, RDMA_PS_TCP),
                 datagrams = Resolved(program, RDMA_PS_UDP);
  Set(a_client_, 0, 0x8002);
  for (const uint32_t id : {connecting, datagrams}) {
    // rdma_create_qp through rdma_init_qp_attr, then rdma_connect.
    EXPECT_EQ(
        DoCm(program, RDMA_USER_CM_CMD_INIT_QP_ATTR, rdma_ucm_init_qp_attr{{}, id, IBV_QPS_INIT}),
        ENOENT);
    EXPECT_EQ(DoCm(program, RDMA_USER_CM_CMD_CONNECT,
                   rdma_ucm_connect{CmProgram::Parameters(), id, 0, {}}),
              ENOENT);
  }
  Set(a_client_, 3, 0x7fff);  // a limited member, at another index
  const CmCall<rdma_ucm_init_qp_attr> ask{program.channel, 0, {{}, connecting, IBV_QPS_INIT}};
  const Reply reply =
      a_client_.CallBytes(CmProgram::Op(RDMA_USER_CM_CMD_INIT_QP_ATTR), &ask, sizeof ask);
  ASSERT_EQ(reply.error, 0);
  ib_uverbs_qp_attr attr{};
  std::memcpy(&attr, reply.body.data(), std::min(sizeof attr, reply.body.size()));
  EXPECT_EQ(attr.pkey_index, 3);
}

TEST_F(PkeysTest, MessagesOfConnectionManagementAreOfThePartition) {
  CmProgram listening(b_client_), program(a_client_);
  listening.Listen(RDMA_PS_TCP, "127.0.0.2", kPort, 8);
  Set(b_client_, 0, 0x8002);
  program.Connect(RDMA_PS_TCP, "127.0.0.2", kPort);
  world_.Settle();
  EXPECT_EQ(Counter(there_, "gsi_key"), 1u);
  Set(b_client_, 2, 0x7fff);
  EXPECT_TRUE(
      world_.RunUntil([&] { return world_.counters.value(listening.counter) > 0; }, seconds(10)))
      << "the repeated REQ: any entry will do";
}

TEST_F(PkeysTest, ARuleChangesAnEntryAndBringsItBack) {
  AddRule(a_client_, "at = \"call.alloc_pd\", nth = 1, pkey = 0x7fff, return_after_ms = 5");
  HandleOut pd{};
  EXPECT_EQ(a_client_.Call(CallOp::kAllocPd, AllocPdIn{a_.context, 0}, pd), 0);
  EXPECT_EQ(Pkey(a_, 0), 0x7fff);
  world_.RunUntil([] { return false; }, milliseconds(10));
  EXPECT_EQ(Pkey(a_, 0), 0xffff);
  EXPECT_EQ(AsyncTypesOf(a_), (std::vector<int>{IBV_EVENT_PKEY_CHANGE, IBV_EVENT_PKEY_CHANGE}));
}

}  // namespace
}  // namespace rdmaemu::testing
