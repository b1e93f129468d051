// Every kind of drop has its own counter in `rdmaemu hosts --json`, and no other counter changes.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "emulator/host/testing/cm_program.h"
#include "emulator/wire/cm_message.h"
#include "emulator/wire/packet.h"

namespace rdmaemu {
namespace {

using testing::Client;
using testing::CmProgram;
using testing::kAllAccess;
using testing::Verb;
using testing::World;
using wire::Operation;
using wire::PacketHeaders;
using wire::TransportClass;
using Json = nlohmann::json;

constexpr const char* kOwn = "127.0.1.1";
constexpr const char* kOtherHost = "127.0.1.2";
constexpr const char* kNowhere = "10.99.0.1";  // in no network of the host
constexpr const char* kGroup = "224.1.2.3";
constexpr uint32_t kQkey = 0x11;
constexpr uint16_t kListenPort = 7000;

std::vector<std::byte> Build(const PacketHeaders& headers, size_t payload_bytes) {
  std::array<std::byte, wire::kMaxHeaderBytes> bytes{};
  const size_t header_bytes = wire::EmitHeaders(headers, bytes);
  std::vector<std::byte> datagram(bytes.begin(), bytes.begin() + static_cast<long>(header_bytes));
  datagram.resize(header_bytes + payload_bytes + wire::kIcrcBytes);
  return datagram;
}

// A host with a queue pair of each kind. The test is its peer.
struct Peer {
  Peer()
      : host(world.AddHost("a", kOwn)),
        client(world, host),
        verb(client),
        memory(131072),
        mr(verb.Register(memory.data(), memory.size(), kAllAccess)),
        rc(verb.CreateQp(IBV_QPT_RC)),
        uc(verb.CreateQp(IBV_QPT_UC)),
        ud(verb.CreateQp(IBV_QPT_UD)) {
    verb.ConnectRc(rc, kOtherHost, 0x55);
    ConnectUc();
    ReadyUd();
  }

  void ConnectUc() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = kAllAccess;
    ASSERT_EQ(
        verb.Modify(uc, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, attr),
        0);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.ah_attr.is_global = attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.sgid_index = 1;
    attr.ah_attr.grh.dgid = NetAddress::Parse(kOtherHost)->ToGid();
    ASSERT_EQ(
        verb.Modify(
            uc, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, attr),
        0);
  }
  void ReadyUd() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qkey = kQkey;
    ASSERT_EQ(verb.Modify(ud, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, attr),
              0);
    attr.qp_state = IBV_QPS_RTR;
    ASSERT_EQ(verb.Modify(ud, IBV_QP_STATE, attr), 0);
    attr.qp_state = IBV_QPS_RTS;
    ASSERT_EQ(verb.Modify(ud, IBV_QP_STATE | IBV_QP_SQ_PSN, attr), 0);
  }

  PacketHeaders To(const Verb::Qp& qp, TransportClass transport, Operation operation,
                   uint32_t psn = 0) const {
    PacketHeaders headers;
    headers.transport = transport;
    headers.operation = operation;
    headers.destination_qpn = qp.made.qpn;
    headers.psn = psn;
    headers.remote_address = reinterpret_cast<uint64_t>(memory.data());
    headers.rkey = mr.rkey;
    headers.dma_length = 8;
    headers.qkey = kQkey;
    headers.syndrome = wire::kAethUnlimitedCredits;
    return headers;
  }
  PacketHeaders ToRc(Operation operation, uint32_t psn = 0) const {
    return To(rc, TransportClass::kRc, operation, psn);
  }
  PacketHeaders ToUc(Operation operation) const { return To(uc, TransportClass::kUc, operation); }
  PacketHeaders ToUd() const { return To(ud, TransportClass::kUd, Operation::kSendOnly); }

  void Receive(std::vector<std::byte> datagram, const char* from = kOtherHost,
               const char* to = kOwn) {
    const wire::UdpFlow flow{*NetAddress::Parse(from), *NetAddress::Parse(to), 4791, 4791};
    wire::SealPacket(flow, datagram);
    host.Receive(world.now, flow, datagram);
  }
  void Receive(const PacketHeaders& headers, size_t payload_bytes = 0,
               const char* from = kOtherHost, const char* to = kOwn) {
    Receive(Build(headers, payload_bytes), from, to);
  }
  void ReceiveMad(std::vector<std::byte> mad, uint32_t qkey = wire::kGsiQkey,
                  const char* from = kOtherHost, const char* to = kOwn) {
    PacketHeaders headers = ToUd();
    headers.destination_qpn = headers.source_qpn = wire::kGsiQpn;
    headers.qkey = qkey;
    std::vector<std::byte> datagram = Build(headers, mad.size());
    std::copy(mad.begin(), mad.end(), datagram.end() - static_cast<long>(mad.size()) - 4);
    Receive(std::move(datagram), from, to);
  }
  static std::vector<std::byte> Mad(wire::CmBody body) {
    std::vector<std::byte> mad(wire::kMadBytes);
    wire::EmitCm({.transaction_id = 1, .attribute_modifier = 0, .body = std::move(body)},
                 std::span<std::byte, wire::kMadBytes>(mad));
    return mad;
  }
  // Returns a MAD with one byte changed.
  static std::vector<std::byte> BadMad(size_t at, uint8_t value) {
    std::vector<std::byte> mad = Mad(wire::CmRtu{});
    mad[at] = std::byte{value};
    return mad;
  }
  static wire::CmReq Request(uint32_t id) {
    wire::CmReq req;
    req.local_comm_id = req.local_qpn = id;
    req.service_id = (uint64_t{RDMA_PS_TCP} << 16) + kListenPort;
    req.local_ca_guid = 77;
    req.primary.local_gid = *NetAddress::Parse(kOtherHost);
    req.primary.remote_gid = *NetAddress::Parse(kOwn);
    wire::EmitRdmaCmHeader({4, 9000, req.primary.local_gid, req.primary.remote_gid},
                           req.private_data);
    return req;
  }
  void Post(Verb::Qp& qp, ibv_wr_opcode opcode, uint32_t bytes,
            const std::function<void(testing::PlainSend&)>& fill = {}) {
    verb.PostSend(qp, 1, opcode, memory.data(), bytes, mr.lkey, fill);
    world.Step();
  }
  std::map<std::string, uint64_t> Dropped() const {
    return Json::parse(host.StatusJson())["counters"]["dropped"];
  }

  World world;
  Host& host;
  Client client;
  Verb verb;
  std::vector<uint8_t> memory;
  MrOut mr;
  Verb::Qp rc, uc, ud;
};

constexpr uint64_t kSome = UINT64_MAX;  // any number above 0

struct Case {
  const char* counter;
  void (*cause)(Peer&);
  uint64_t count = 1;
  const char* also = "";  // another counter that the same cause increments
};

const Case kCases[] = {
    // ---- datagrams
    {"network_full",
     [](Peer& p) {
       p.world.network_room = 0;
       p.Post(p.rc, IBV_WR_SEND, 8);
     }},
    {"bad_icrc",
     [](Peer& p) {
       const wire::UdpFlow flow{*NetAddress::Parse(kOtherHost), *NetAddress::Parse(kOwn), 4791,
                                4791};
       p.host.Receive(p.world.now, flow, Build(p.ToRc(Operation::kSendOnly), 8));
     }},
    {"packet_too_short",
     [](Peer& p) {
       auto datagram = Build(p.ToRc(Operation::kWriteOnly), 0);
       datagram.resize(16);
       p.Receive(datagram);
     }},
    {"packet_version",
     [](Peer& p) {
       auto datagram = Build(p.ToRc(Operation::kSendOnly), 0);
       datagram[1] |= std::byte{1};
       p.Receive(datagram);
     }},
    {"packet_opcode",
     [](Peer& p) {
       auto datagram = Build(p.ToRc(Operation::kSendOnly), 0);
       datagram[0] = std::byte{0x1f};
       p.Receive(datagram);
     }},
    {"packet_length", [](Peer& p) { p.Receive(p.ToRc(Operation::kSendOnly), 3); }},
    {"packet_padding",
     [](Peer& p) {
       PacketHeaders headers = p.ToRc(Operation::kSendOnly);
       headers.pad_bytes = 1;
       p.Receive(headers, 0);
     }},
    {"not_ours",
     [](Peer& p) { p.Receive(p.ToRc(Operation::kSendOnly), 8, kOtherHost, "127.0.9.9"); }},
    // ---- MADs
    {"gsi_key", [](Peer& p) { p.ReceiveMad(Peer::Mad(wire::CmRtu{}), 5); }},
    {"gsi_queue",
     [](Peer& p) {
       // The host answers each with a DREP to itself.
       for (int i = 0; i <= 65536; ++i) {
         p.ReceiveMad(Peer::Mad(wire::CmDreq{1, 2, 3, {}}), wire::kGsiQkey, kOwn);
       }
     }},
    {"mad_too_short", [](Peer& p) { p.ReceiveMad(std::vector<std::byte>(wire::kMadBytes - 4)); }},
    {"mad_too_long", [](Peer& p) { p.ReceiveMad(std::vector<std::byte>(wire::kMadBytes + 4)); }},
    {"mad_class", [](Peer& p) { p.ReceiveMad(Peer::BadMad(1, 3)); }},
    {"mad_version", [](Peer& p) { p.ReceiveMad(Peer::BadMad(2, 9)); }},
    {"mad_method", [](Peer& p) { p.ReceiveMad(Peer::BadMad(3, 1)); }},
    {"mad_attribute", [](Peer& p) { p.ReceiveMad(Peer::BadMad(17, 0x19)); }},
    // ---- packets of queue pairs
    {"no_qp",
     [](Peer& p) {
       PacketHeaders headers = p.ToRc(Operation::kSendOnly);
       headers.destination_qpn = 0x7777;
       p.Receive(headers, 8);
     }},
    {"wrong_state",
     [](Peer& p) {
       p.Receive(p.To(p.verb.CreateQp(IBV_QPT_RC), TransportClass::kRc, Operation::kSendOnly), 8);
     }},
    {"wrong_address", [](Peer& p) { p.Receive(p.ToRc(Operation::kSendOnly), 8, "127.0.1.3"); }},
    {"wrong_pkey",
     [](Peer& p) {
       PacketHeaders headers = p.ToRc(Operation::kSendOnly);
       headers.pkey = 0x1234;
       p.Receive(headers, 8);
     }},
    {"wrong_qkey",
     [](Peer& p) {
       PacketHeaders headers = p.ToUd();
       headers.qkey = 5;
       p.Receive(headers, 8);
     }},
    {"bad_opcode",
     [](Peer& p) { p.Receive(p.To(p.rc, TransportClass::kUc, Operation::kSendOnly), 8); }},
    {"own_multicast",
     [](Peer& p) {
       PacketHeaders headers = p.ToUd();
       headers.destination_qpn = wire::kMulticastQpn;
       p.Receive(headers, 8, kOwn, kGroup);
     }},
    {"no_group",
     [](Peer& p) {
       PacketHeaders headers = p.ToUd();
       headers.destination_qpn = wire::kMulticastQpn;
       p.Receive(headers, 8, kOtherHost, kGroup);
     }},
    {"no_receive", [](Peer& p) { p.Receive(p.ToUd(), 8); }},
    {"out_of_sequence", [](Peer& p) { p.Receive(p.ToRc(Operation::kSendOnly, 5), 8); }},
    {"wrong_length", [](Peer& p) { p.Receive(p.ToUc(Operation::kSendFirst), 8); }},
    {"no_access",
     [](Peer& p) {
       PacketHeaders headers = p.ToUc(Operation::kWriteOnly);
       headers.rkey++;
       p.Receive(headers, 8);
     }},
    {"no_memory",
     [](Peer& p) {
       p.world.memory.holes = {{{reinterpret_cast<uint64_t>(p.memory.data()), 64}}};
       p.Receive(p.ToUc(Operation::kWriteOnly), 8);
     }},
    {"old_request", [](Peer& p) { p.Receive(p.ToRc(Operation::kReadRequest, wire::kPsnMask)); }},
    // ---- answers
    {"old_answer",
     [](Peer& p) {
       p.Post(p.rc, IBV_WR_SEND, 8);
       p.Receive(p.ToRc(Operation::kAcknowledge));
       p.Receive(p.ToRc(Operation::kAcknowledge));
     }},
    {"unexpected_answer", [](Peer& p) { p.Receive(p.ToRc(Operation::kAcknowledge, 50)); }},
    {"answer_gap",
     [](Peer& p) {
       p.Post(p.rc, IBV_WR_RDMA_READ, 8);
       p.Post(p.rc, IBV_WR_RDMA_READ, 8);
       p.Receive(p.ToRc(Operation::kReadResponseOnly, 1), 8);
     }},
    {"bad_syndrome",
     [](Peer& p) {
       p.Post(p.rc, IBV_WR_SEND, 8);
       PacketHeaders headers = p.ToRc(Operation::kAcknowledge);
       headers.syndrome = 0x40;
       p.Receive(headers);
     }},
    {"answer_queue_full",
     [](Peer& p) {
       p.Receive(p.ToRc(Operation::kFetchAdd));
       PacketHeaders read = p.ToRc(Operation::kReadRequest, 1);
       read.dma_length = static_cast<uint32_t>(p.memory.size());
       p.Receive(read);
       // The READ's responses are sent by the next Work. Repeated atomics wait behind them.
       for (int i = 0; i < 16; ++i) p.Receive(p.ToRc(Operation::kFetchAdd));
     }},
    // ---- inside the host
    {"sender_gone",
     [](Peer& p) {
       Verb::Qp from = p.verb.CreateQp(IBV_QPT_RC, 1023), to = p.verb.CreateQp(IBV_QPT_RC);
       p.verb.ConnectRc(from, kOwn, to.made.qpn);
       p.verb.ConnectRc(to, kOwn, from.made.qpn);
       for (int i = 0; i < 1000; ++i) {
         p.verb.PostSend(from, 1, IBV_WR_RDMA_WRITE, p.memory.data(), 8, p.mr.lkey,
                         [&](testing::PlainSend& wqe) {
                           wqe.wr.send_flags = 0;
                           wqe.wr.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(p.memory.data());
                           wqe.wr.wr.rdma.rkey = p.mr.rkey;
                         });
       }
       p.world.Step();  // delivers no more than half of them
       ibv_qp_attr attr{};
       attr.qp_state = IBV_QPS_ERR;
       ASSERT_EQ(p.verb.Modify(from, IBV_QP_STATE, attr), 0);
       p.world.Settle();
     },
     kSome, "wrong_state"},
    {"above_mtu",
     [](Peer& p) {
       CreateAhIn in{};
       in.pd = p.verb.pd;
       in.attr.is_global = in.attr.port_num = 1;
       in.attr.grh.sgid_index = 1;
       in.attr.grh.dgid = NetAddress::Parse(kOtherHost)->ToGid();
       HandleOut ah{};
       ASSERT_EQ(p.client.Call(CallOp::kCreateAh, in, ah), 0);
       p.Post(p.ud, IBV_WR_SEND, 5000,
              [&](testing::PlainSend& wqe) { wqe.wr.wr.ud.ah_num = ah.handle; });
     }},
    {"no_link",
     [](Peer& p) {
       ChangeDeviceIn in{};
       in.change = static_cast<uint32_t>(DeviceChange::kPortDown);
       std::strcpy(in.device, "rxe0");
       ASSERT_EQ(p.client.Call(CallOp::kChangeDevice, in), 0);
       p.ReceiveMad(Peer::Mad(wire::CmRtu{5, 6, {}}));
     }},
    // ---- connection management
    {"cm_no_device",
     [](Peer& p) { p.ReceiveMad(Peer::Mad(wire::CmRtu{}), wire::kGsiQkey, kOtherHost, kGroup); }},
    {"cm_no_match",
     [](Peer& p) {
       p.ReceiveMad(Peer::Mad(wire::CmRtu{5, 6, {}}));
     }},
    {"cm_backlog_full",
     [](Peer& p) {
       CmProgram program(p.client);
       program.Listen(RDMA_PS_TCP, kOwn, kListenPort, 1);
       p.ReceiveMad(Peer::Mad(Peer::Request(1)));
       p.ReceiveMad(Peer::Mad(Peer::Request(2)));
     }},
    {"cm_no_route",
     [](Peer& p) { p.ReceiveMad(Peer::Mad(Peer::Request(1)), wire::kGsiQkey, kNowhere); }},
    {"cm_id_in_use",
     [](Peer& p) {
       CmProgram program(p.client);
       std::vector<uint32_t> asked;
       p.world.SetFilter([&](const World::Datagram& datagram) {
         const auto message = wire::ParseCm(wire::Parse(datagram.bytes)->payload);
         asked.push_back(std::get<wire::CmReq>(message->body).local_comm_id);
         return false;
       });
       program.Connect(RDMA_PS_TCP, kOtherHost, kListenPort);
       program.Connect(RDMA_PS_TCP, kOtherHost, kListenPort);
       p.world.Step();
       p.world.SetFilter({});
       ASSERT_EQ(asked.size(), 2u);
       for (const uint32_t id : asked) {
         wire::CmRep rep;
         rep.local_comm_id = 9;  // one id for two connections
         rep.remote_comm_id = id;
         rep.local_qpn = id;
         p.ReceiveMad(Peer::Mad(rep));
       }
     }},
};

// These need 262144 connections or events. neighbour_test.cc causes the second one.
const std::set<std::string> kNotCaused = {"cm_no_room", "cm_channel_full"};

class DropCounters : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Causes, DropCounters, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.counter); });

TEST_P(DropCounters, CountsItsCauseAndNothingElse) {
  const Case& tried = GetParam();
  Peer peer;
  tried.cause(peer);
  for (const auto& [counter, count] : peer.Dropped()) {
    if (counter == tried.also) continue;
    if (counter == tried.counter && tried.count == kSome) {
      EXPECT_GT(count, 0u) << counter;
    } else {
      EXPECT_EQ(count, counter == tried.counter ? tried.count : 0) << counter;
    }
  }
}

TEST(DropCounters, EachHasACase) {
  std::set<std::string> with_case = kNotCaused, all;
  for (const Case& each : kCases) with_case.insert(each.counter);
  for (const auto& [counter, count] : Peer().Dropped()) all.insert(counter);
  EXPECT_EQ(all, with_case);
}

}  // namespace
}  // namespace rdmaemu
