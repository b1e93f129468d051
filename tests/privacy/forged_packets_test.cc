// Strangers on the network against a running host, by real UDP datagrams. Each stranger has all
// numbers and the key, but not the connection's address. The host counts the drop, and the memory
// does not change. The host accepts the same bytes from the connection's address.
//
// Runs on a host at RDMA_TEST_LOCAL (privacy.py). RDMA_TEST_PEER and RDMA_TEST_STRANGER are free
// addresses, where this program opens its own sockets.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "emulator/wire/testing/datagram.h"

namespace rdmaemu {
namespace {

using wire::Operation;
using wire::PacketHeaders;
using wire::TransportClass;

constexpr uint32_t kQkey = 0x11223344;
constexpr uint32_t kPsn = 4711;
constexpr uint8_t kPayload[8] = {1, 2, 3, 4, 5, 6, 7, 8};
constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                           IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

nlohmann::json Counters() {
  const std::string command = Variable("RDMA_TEST_RDMAEMU") + " hosts --json";
  FILE* pipe = popen(command.c_str(), "r");
  std::string text;
  for (char buffer[4096]; size_t got = fread(buffer, 1, sizeof buffer, pipe);) {
    text.append(buffer, got);
  }
  pclose(pipe);
  const auto hosts = nlohmann::json::parse(text);
  for (const auto& host : hosts.is_array() ? hosts : hosts.at("hosts")) {
    if (host.at("name") == Variable("RDMAEMU_HOST")) return host.at("counters");
  }
  return {};
}

// A socket at an address of the loopback network. Any user may open one.
class Sender {
 public:
  explicit Sender(const std::string& address)
      : address_(address), fd_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    // The same options as of any RoCE sender, because the ICRC covers the fields that they
    // determine.
    const int discover = IP_PMTUDISC_DO;
    setsockopt(fd_, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof discover);
    sockaddr_in name = Name(address, 0);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&name), sizeof name), 0) << address;
    socklen_t size = sizeof name;
    getsockname(fd_, reinterpret_cast<sockaddr*>(&name), &size);
    port_ = ntohs(name.sin_port);
  }
  ~Sender() { close(fd_); }

  void Send(const std::string& to, const PacketHeaders& headers,
            std::span<const std::byte> payload) {
    const wire::UdpFlow flow{*NetAddress::Parse(address_), *NetAddress::Parse(to), port_,
                             wire::kRoceUdpPort};
    const std::vector<std::byte> bytes = wire::MakeDatagram(flow, headers, payload);
    const sockaddr_in name = Name(to, wire::kRoceUdpPort);
    EXPECT_EQ(sendto(fd_, bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&name),
                     sizeof name),
              static_cast<ssize_t>(bytes.size()));
  }

 private:
  static sockaddr_in Name(const std::string& address, uint16_t port) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(port);
    inet_pton(AF_INET, address.c_str(), &name.sin_addr);
    return name;
  }
  std::string address_;
  int fd_;
  uint16_t port_ = 0;
};

class Strangers : public ::testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    ASSERT_GT(count, 0);
    context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    ASSERT_NE(context, nullptr);
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
    mr = ibv_reg_mr(pd, memory, sizeof memory, kAllAccess);
    ASSERT_TRUE(pd != nullptr && cq != nullptr && mr != nullptr);
    rc = Create(IBV_QPT_RC);
    uc = Create(IBV_QPT_UC);
    ud = Create(IBV_QPT_UD);
    idle = Create(IBV_QPT_RC);
    ASSERT_TRUE(rc != nullptr && uc != nullptr && ud != nullptr && idle != nullptr);
    Ready(rc);
    Ready(uc);
    Ready(ud);
  }
  void TearDown() override {
    for (ibv_qp* qp : {rc, uc, ud, idle}) EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    EXPECT_EQ(ibv_close_device(context), 0);
  }
  ibv_qp* Create(ibv_qp_type type) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.cap = {4, 4, 1, 1, 0};
    init.qp_type = type;
    return ibv_create_qp(pd, &init);
  }
  // Moves the QP to RTR, with RDMA_TEST_PEER as its peer.
  void Ready(ibv_qp* qp) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qkey = kQkey;
    attr.qp_access_flags = kAllAccess;
    const int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    ASSERT_EQ(ibv_modify_qp(qp, &attr,
                            init | (qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
              0);
    ibv_sge sge{reinterpret_cast<uint64_t>(memory), sizeof memory, mr->lkey};
    ibv_recv_wr receive{}, *bad;
    receive.sg_list = &sge;
    receive.num_sge = 1;
    ASSERT_EQ(ibv_post_recv(qp, &receive, &bad), 0);
    attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = 77;
    attr.rq_psn = kPsn;
    attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    attr.ah_attr.is_global = attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.sgid_index = 1;
    attr.ah_attr.grh.hop_limit = 64;
    attr.ah_attr.grh.dgid.raw[10] = attr.ah_attr.grh.dgid.raw[11] = 0xff;
    inet_pton(AF_INET, peer.c_str(), attr.ah_attr.grh.dgid.raw + 12);
    int mask = IBV_QP_STATE;
    if (qp->qp_type != IBV_QPT_UD) {
      mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    }
    if (qp->qp_type == IBV_QPT_RC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    ASSERT_EQ(ibv_modify_qp(qp, &attr, mask), 0);
  }

  PacketHeaders Write(const ibv_qp* qp, TransportClass transport) {
    PacketHeaders headers;
    headers.transport = transport;
    headers.operation = Operation::kWriteOnly;
    headers.destination_qpn = qp->qp_num;
    headers.psn = kPsn;
    headers.remote_address = reinterpret_cast<uint64_t>(memory);
    headers.rkey = mr->rkey;
    headers.dma_length = sizeof kPayload;
    return headers;
  }
  static std::span<const std::byte> Payload() { return std::as_bytes(std::span(kPayload)); }
  // Sends the packet and waits until the host's counter shows that it was received.
  void Deliver(Sender& sender, const PacketHeaders& headers,
               std::span<const std::byte> payload = Payload()) {
    const uint64_t before = Counters().at("datagrams_received");
    sender.Send(local, headers, payload);
    while (Counters().at("datagrams_received") == before) std::this_thread::yield();
  }
  void ExpectDropped(const PacketHeaders& headers, const char* reason, Sender& sender,
                     std::span<const std::byte> payload = Payload()) {
    SCOPED_TRACE(headers.info().name);
    const uint64_t before = Counters().at("dropped").at(reason);
    Deliver(sender, headers, payload);
    EXPECT_EQ(Counters().at("dropped").at(reason), before + 1) << reason;
    for (const uint8_t byte : memory) ASSERT_EQ(byte, 0);
    ibv_wc wc{};
    EXPECT_EQ(ibv_poll_cq(cq, 1, &wc), 0);
  }

  const std::string local = Variable("RDMA_TEST_LOCAL"), peer = Variable("RDMA_TEST_PEER");
  Sender stranger{Variable("RDMA_TEST_STRANGER")}, friendly{peer};
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  ibv_qp *rc = nullptr, *uc = nullptr, *ud = nullptr, *idle = nullptr;
  alignas(8) uint8_t memory[128] = {};
};

TEST_F(Strangers, CannotWriteReadOrAddThroughAConnection) {
  PacketHeaders headers = Write(rc, TransportClass::kRc);
  ExpectDropped(headers, "wrong_address", stranger);
  headers.operation = Operation::kReadRequest;
  ExpectDropped(headers, "wrong_address", stranger, {});
  headers.operation = Operation::kFetchAdd;
  headers.swap_add = 1;
  ExpectDropped(headers, "wrong_address", stranger, {});
  headers.operation = Operation::kSendOnly;
  ExpectDropped(headers, "wrong_address", stranger);
  Deliver(friendly, Write(rc, TransportClass::kRc));
  EXPECT_EQ(memory[7], 8) << "the same bytes from the right address";
}

TEST_F(Strangers, CannotWriteThroughUc) {
  ExpectDropped(Write(uc, TransportClass::kUc), "wrong_address", stranger);
  Deliver(friendly, Write(uc, TransportClass::kUc));
  EXPECT_EQ(memory[7], 8);
}

TEST_F(Strangers, CannotSendDatagramsWithoutTheQkey) {
  PacketHeaders headers;
  headers.transport = TransportClass::kUd;
  headers.operation = Operation::kSendOnly;
  headers.destination_qpn = ud->qp_num;
  headers.source_qpn = 77;
  headers.qkey = kQkey ^ 1;
  ExpectDropped(headers, "wrong_qkey", stranger);
  headers.qkey = kQkey;
  Deliver(stranger, headers);
  ibv_wc wc{};
  ASSERT_EQ(ibv_poll_cq(cq, 1, &wc), 1);  // the poll also copies a small payload
  EXPECT_EQ(memory[40 + 7], 8) << "the Q_Key is all that UD asks for";
}

TEST_F(Strangers, CannotWriteToAQueuePairThatIsNotConnected) {
  ExpectDropped(Write(idle, TransportClass::kRc), "wrong_state", friendly);
}

TEST_F(Strangers, CannotPassNoiseForPackets) {
  const uint64_t before = Counters().at("dropped").at("bad_icrc");
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(wire::kRoceUdpPort);
  inet_pton(AF_INET, local.c_str(), &to.sin_addr);
  const char noise[64] = "not a packet";
  ASSERT_EQ(sendto(fd, noise, sizeof noise, 0, reinterpret_cast<sockaddr*>(&to), sizeof to), 64);
  while (Counters().at("dropped").at("bad_icrc") == before) std::this_thread::yield();
  close(fd);
}

}  // namespace
}  // namespace rdmaemu
