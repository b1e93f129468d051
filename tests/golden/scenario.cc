#include "tests/golden/scenario.h"

#include <endian.h>

#include "emulator/trace/pcapng.h"
#include "emulator/wire/packet.h"
#include "tests/golden/party.h"

namespace rdmaemu::golden {
namespace {

constexpr Duration kWallOffset = std::chrono::seconds(1'700'000'000);
constexpr uint16_t kPort = 7174, kSilentPort = 7175;

void FillPattern(std::span<std::byte> bytes, uint32_t seed) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(i * 7 + seed * 13 + (i >> 8));
  }
}

bool Same(std::span<std::byte> one, std::span<std::byte> other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end());
}

rdma_ucm_conn_param Parameters(uint32_t qpn, const std::string& data) {
  rdma_ucm_conn_param in{};
  in.qp_num = qpn;
  in.private_data_len = static_cast<uint8_t>(data.size());
  std::copy(data.begin(), data.end(), in.private_data);
  in.responder_resources = 4;
  in.initiator_depth = 4;
  in.retry_count = 6;
  in.rnr_retry_count = 7;
  in.valid = 1;
  return in;
}

rdma_ucm_connect ConnectOf(uint32_t id, uint32_t qpn, const std::string& data) {
  rdma_ucm_connect in{};
  in.id = id;
  in.conn_param = Parameters(qpn, data);
  return in;
}

rdma_ucm_accept AcceptOf(uint32_t id, const rdma_ucm_conn_param& parameters) {
  rdma_ucm_accept in{};
  in.id = id;
  in.uid = 2;
  in.conn_param = parameters;
  return in;
}

class Scenario {
 public:
  Scenario(const std::string& active, const std::string& passive, bool loses, std::string& file)
      : passive_address_(passive),
        a_(world_, world_.AddHost("a", active), active),
        b_(world_, world_.AddHost("b", passive), passive) {
    // The capture contains every packet that a host sends. Some packets are then dropped.
    world_.SetFilter([this, loses, &file](const testing::World::Datagram& datagram) {
      writer_.AppendPacket(world_.now, datagram.flow, datagram.bytes, file);
      const auto packet = wire::Parse(datagram.bytes);
      return !(loses && packet && packet->headers.operation == wire::Operation::kSendMiddle &&
               !std::exchange(lost_, true));
    });
  }

  void Run() {
    const uint32_t listener = b_.CreateId(RDMA_PS_TCP);
    b_.Listen(listener, kPort);
    NobodyListens();
    const auto [active, passive] = Connect();
    MoveData();
    Disconnect(active, passive);
    Datagrams();
    b_.Destroy(listener);
  }

 private:
  // REQ, REJ.
  void NobodyListens() {
    const uint32_t id = a_.CreateId(RDMA_PS_TCP);
    a_.Resolve(id, passive_address_, kSilentPort);
    a_.Do(RDMA_USER_CM_CMD_CONNECT, ConnectOf(id, 17, "anybody?"));
    a_.Event(cm::EventType::kRejected);
    a_.Destroy(id);
  }

  // REQ, REP, RTU.
  std::pair<uint32_t, uint32_t> Connect() {
    const uint32_t active = a_.CreateId(RDMA_PS_TCP);
    a_.Resolve(active, passive_address_, kPort);
    qa_ = a_.CreateQp(IBV_QPT_RC);
    a_.Modify(qa_, active, IBV_QPS_INIT);
    a_.Do(RDMA_USER_CM_CMD_CONNECT, ConnectOf(active, qa_.made.qpn, "hello"));
    const uint32_t passive = b_.Event(cm::EventType::kConnectRequest).id;
    qb_ = b_.CreateQp(IBV_QPT_RC);
    for (const auto state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS})
      b_.Modify(qb_, passive, state);
    b_.Do(RDMA_USER_CM_CMD_ACCEPT, AcceptOf(passive, Parameters(qb_.made.qpn, "welcome")));
    a_.Event(cm::EventType::kConnectResponse);
    for (const auto state : {IBV_QPS_RTR, IBV_QPS_RTS}) a_.Modify(qa_, active, state);
    a_.Do(RDMA_USER_CM_CMD_ACCEPT, AcceptOf(active, {}));
    b_.Event(cm::EventType::kEstablished);
    return {active, passive};
  }

  // Uses every operation, with messages of one packet and of several, and a length that needs
  // padding.
  void MoveData() {
    FillPattern(a_.bytes(0, 8192), 1);
    const auto remote = [this](size_t offset) {
      return [this, offset](testing::PlainSend& wqe) {
        wqe.wr.wr.rdma.remote_addr = Party::kMemory + offset;
        wqe.wr.wr.rdma.rkey = b_.rkey();
      };
    };
    for (const uint32_t length : {0u, 5u, 3001u}) {
      b_.PostReceive(qb_, 0, 4096);
      a_.PostSend(qa_, IBV_WR_SEND, 0, length);
      b_.Completion();
      a_.Completion();
      Expect(Same(a_.bytes(0, length), b_.bytes(0, length)), "SEND");
    }
    b_.PostReceive(qb_, 0, 4096);
    a_.PostSend(qa_, IBV_WR_SEND_WITH_IMM, 100, 1025, [](testing::PlainSend& wqe) {
      wqe.wr.ex.imm_data = htobe32(0x01020304);
      wqe.wr.send_flags |= IBV_SEND_SOLICITED;
    });
    b_.Completion();
    a_.Completion();
    a_.PostSend(qa_, IBV_WR_RDMA_WRITE, 0, 2500, remote(8192));
    a_.Completion();
    Expect(Same(a_.bytes(0, 2500), b_.bytes(8192, 2500)), "WRITE");
    b_.PostReceive(qb_, 0, 0);
    a_.PostSend(qa_, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 7, [&](testing::PlainSend& wqe) {
      remote(12288)(wqe);
      wqe.wr.ex.imm_data = htobe32(0xa0b0c0d0);
    });
    b_.Completion();
    a_.Completion();
    a_.PostSend(qa_, IBV_WR_RDMA_READ, 16384, 2500, remote(8192));
    a_.Completion();
    Expect(Same(a_.bytes(16384, 2500), b_.bytes(8192, 2500)), "READ");
    const auto atomic = [this](uint64_t compare_add, uint64_t swap) {
      return [this, compare_add, swap](testing::PlainSend& wqe) {
        wqe.wr.wr.atomic.remote_addr = Party::kMemory + 20480;
        wqe.wr.wr.atomic.rkey = b_.rkey();
        wqe.wr.wr.atomic.compare_add = compare_add;
        wqe.wr.wr.atomic.swap = swap;
      };
    };
    a_.PostSend(qa_, IBV_WR_ATOMIC_FETCH_AND_ADD, 20480, 8, atomic(0x1111, 0));
    a_.Completion();
    a_.PostSend(qa_, IBV_WR_ATOMIC_CMP_AND_SWP, 20480, 8, atomic(0x1111, 0x2222));
    a_.Completion();
    b_.PostReceive(qb_, 0, 64);
    a_.PostSend(qa_, IBV_WR_SEND_WITH_INV, 0, 16,
                [this](testing::PlainSend& wqe) { wqe.wr.ex.invalidate_rkey = b_.rkey(); });
    b_.Completion();
    a_.Completion();
  }

  // DREQ, DREP.
  void Disconnect(uint32_t active, uint32_t passive) {
    a_.Do(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{active});
    b_.Event(cm::EventType::kDisconnected);
    b_.Do(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{passive});
    a_.Event(cm::EventType::kDisconnected);
    a_.Event(cm::EventType::kTimewaitExit);
    b_.Event(cm::EventType::kTimewaitExit);
    a_.Destroy(active);
    b_.Destroy(passive);
  }

  // SIDR_REQ, SIDR_REP (first a refusal), and one datagram without and one with immediate data.
  void Datagrams() {
    const uint32_t refused = a_.CreateId(RDMA_PS_UDP);
    a_.Resolve(refused, passive_address_, kSilentPort);
    a_.Do(RDMA_USER_CM_CMD_CONNECT, ConnectOf(refused, 0, ""));
    a_.Event(cm::EventType::kUnreachable);
    a_.Destroy(refused);

    const uint32_t listener = b_.CreateId(RDMA_PS_UDP);
    b_.Listen(listener, kPort);
    const uint32_t active = a_.CreateId(RDMA_PS_UDP);
    a_.Resolve(active, passive_address_, kPort);
    auto ua = a_.CreateQp(IBV_QPT_UD), ub = b_.CreateQp(IBV_QPT_UD);
    a_.ReadyUd(ua, active);
    a_.Do(RDMA_USER_CM_CMD_CONNECT, ConnectOf(active, ua.made.qpn, "datagrams?"));
    const uint32_t passive = b_.Event(cm::EventType::kConnectRequest).id;
    b_.ReadyUd(ub, passive);
    b_.Do(RDMA_USER_CM_CMD_ACCEPT, AcceptOf(passive, Parameters(ub.made.qpn, "yes")));
    const rdma_ucm_event_resp reached = a_.Event(cm::EventType::kEstablished);
    const uint32_t ah = a_.CreateAh(reached.param.ud.ah_attr);
    for (const auto opcode : {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM}) {
      b_.PostReceive(ub, 0, 4096);
      a_.PostSend(ua, opcode, 0, 101, [&](testing::PlainSend& wqe) {
        wqe.wr.wr.ud.ah_num = ah;
        wqe.wr.wr.ud.remote_qpn = reached.param.ud.qp_num;
        wqe.wr.wr.ud.remote_qkey = reached.param.ud.qkey;
        if (opcode == IBV_WR_SEND_WITH_IMM) wqe.wr.ex.imm_data = htobe32(0x55667788);
      });
      b_.Completion();
      a_.Completion();
    }
    Expect(Same(a_.bytes(0, 101), b_.bytes(40, 101)), "UD SEND");
    a_.Destroy(active);
    b_.Destroy(passive);
    b_.Destroy(listener);
  }

  trace::PcapngWriter writer_{kWallOffset, "golden"};
  bool lost_ = false;
  std::string passive_address_;
  testing::World world_;
  Party a_, b_;
  testing::Verb::Qp qa_, qb_;
};

}  // namespace

std::string RecordScenario() {
  std::string file;
  trace::PcapngWriter(kWallOffset, "golden").AppendStart(file);
  Scenario("10.0.0.1", "10.0.0.2", false, file).Run();
  Scenario("fd00::1", "fd00::2", true, file).Run();
  return file;
}

}  // namespace rdmaemu::golden
