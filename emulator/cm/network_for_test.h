// Connection managers of hosts on a network with virtual time, for tests. Each Node is a host with
// one device. Each message is delivered after one millisecond. A filter may drop, duplicate or
// delay them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "emulator/base/nothing_queued.h"
#include "emulator/cm/cm.h"
#include "emulator/cm/events.h"
#include "emulator/cm/socket_address.h"

namespace rdmaemu::cm {

using namespace std::chrono_literals;

class FakeCounters final : public EventCounters {
 public:
  Result<CounterId> Create() override {
    const auto id = static_cast<CounterId>(++last_);
    values_[id] = 0;
    return id;
  }
  void Destroy(CounterId counter) override { values_.erase(counter); }
  void Add(CounterId counter, uint32_t count) override { values_.at(counter) += count; }
  uint32_t Remove(CounterId counter, uint32_t count) override {
    const uint32_t taken = std::min(values_.at(counter), count);
    values_.at(counter) -= taken;
    return taken;
  }
  int Descriptor(CounterId counter) const override { return static_cast<int>(counter); }
  uint32_t value(CounterId counter) const { return values_.at(counter); }
  size_t size() const { return values_.size(); }

 private:
  uint32_t last_ = 0;
  std::map<CounterId, uint32_t> values_;
};

class NoTrace final : public trace::Sink {
 public:
  bool wants_records() const override { return keep; }
  void Write(const trace::Record& record) override { records.push_back(record); }
  bool wants_packets() const override { return false; }
  void WritePacket(Time, const wire::UdpFlow&, std::span<const std::byte>) override {}
  bool keep = false;
  std::vector<trace::Record> records;
};

inline Profile TestProfile() {
  Profile profile = {};
  profile.cm = {.response_timeout = 20,
                .max_retries = 15,
                .packet_lifetime = 16,
                .mra_service_timeout = 24,
                .timewait_floor = 0ms,
                .max_backlog = 1024,
                .ud_qkey = 0x01234567};
  return profile;
}

class Net;

class Node final : public CmAddresses, public CmTransport, public CmGroups, public CmQueuePairs {
 public:
  Node(Net& net, const char* address, uint64_t seed);

  const CmDevice* DeviceOf(const NetAddress& local) const override {
    return !removed && addresses.contains(local) ? &device : nullptr;
  }
  std::vector<const CmDevice*> Devices() const override { return {&device}; }
  uint8_t GidIndexOf(const NetAddress& local) const override {
    return static_cast<uint8_t>(1 + std::distance(addresses.begin(), addresses.find(local)));
  }
  Reach FindRoute(const NetAddress& destination, const std::optional<NetAddress>& from,
                  uint32_t) const override {
    const auto found = [&](const NetAddress& own) {
      return Reach{Reach::Kind::kFound, from.value_or(own)};
    };
    if (addresses.contains(destination)) return found(destination);
    if (destination.IsIpv4() && destination.ToIpv4() >> 16 == (10 << 8 | 99)) {
      return {Reach::Kind::kSilent, {}};
    }
    if (destination.IsIpv4() && destination.ToIpv4() >> 24 == 203) return {};
    const auto own = SourceInSubnet(destination);
    return own ? found(*own) : Reach{};
  }
  std::optional<NetAddress> SourceInSubnet(const NetAddress& destination) const override {
    for (const NetAddress& own : addresses) {
      if (own.IsIpv4() == destination.IsIpv4()) return own;
    }
    return std::nullopt;
  }
  bool LivesOnLoopback(bool) const override { return false; }
  bool IsOwnAddress(const NetAddress& local) const override { return addresses.contains(local); }
  Status Send(Time now, const CmRoute& route, const wire::CmMessage& message) override;
  Status JoinGroup(uint32_t, const NetAddress&, const NetAddress& group) override {
    if (groups_left == 0) return Fail(ENOBUFS);
    groups_left--;
    groups[group]++;
    return {};
  }
  void LeaveGroup(uint32_t, const NetAddress& group) override {
    groups_left++;
    if (--groups[group] == 0) groups.erase(group);
  }
  // The existing QPs. iw_cm moves them from idle_qps to connected_qps.
  Status CheckConnectable(GroupId, const NetAddress&, uint32_t qpn) override {
    if (!idle_qps.contains(qpn)) return Fail(EINVAL);
    return {};
  }
  Status ConnectQp(Time, GroupId, uint32_t qpn, const QpConnection& connection) override {
    if (idle_qps.erase(qpn) == 0) return Fail(EINVAL);
    connected_qps[qpn] = connection;
    return {};
  }
  void DisconnectQp(Time now, GroupId, const NetAddress&, uint32_t qpn) override {
    EndQp(now, qpn);
  }
  // Acts as ibv_modify_qp to ERR, or as ibv_destroy_qp.
  void EndQp(Time now, uint32_t qpn) {
    connected_qps.erase(qpn);
    idle_qps.erase(qpn);
    cm.QpEnded(now, qpn);
  }

  std::set<uint32_t> idle_qps;
  std::map<uint32_t, QpConnection> connected_qps;
  Net& net;
  std::map<NetAddress, int> groups;  // number of joins of each group
  int groups_left = 1000;
  std::set<NetAddress> addresses;
  Profile profile = TestProfile();
  CmDevice device;
  bool removed = false;
  bool port_down = false;  // the device reports at once that it cannot send
  FakeCounters counters;
  NoTrace trace;
  Random generator;
  Cm cm;
};

class Net {
 public:
  struct Fate {
    bool lost = false;
    int copies = 1;
    Duration delay = 1ms;
  };
  using Filter = std::function<Fate(const wire::CmMessage&)>;

  Node& Add(const char* address) {
    nodes.push_back(std::make_unique<Node>(*this, address, 1000 + nodes.size()));
    return *nodes.back();
  }
  void Carry(const CmRoute& route, const wire::CmMessage& message) {
    sent[wire::CmName(message.body)]++;
    const Fate fate = filter ? filter(message) : Fate{};
    if (fate.lost) return;
    for (int i = 0; i < fate.copies; i++) {
      flying.emplace(now + fate.delay, std::pair(route, message));
    }
  }
  // Processes all messages and timers that are due by `until`.
  void RunUntil(Time until) {
    for (;;) {
      std::optional<Time> next;
      if (!flying.empty()) next = flying.begin()->first;
      for (const auto& node : nodes) {
        if (const auto due = node->cm.NextDeadline(); due && (!next || *due < *next)) next = due;
      }
      if (!next || *next > until) break;
      now = std::max(now, *next);
      while (!flying.empty() && flying.begin()->first <= now) {
        const auto [route, message] = flying.begin()->second;
        flying.erase(flying.begin());
        for (const auto& node : nodes) {
          if (node->addresses.contains(route.destination)) node->cm.Receive(now, route, message);
        }
      }
      for (const auto& node : nodes) node->cm.Expire(now);
    }
    now = std::max(now, until);
  }
  void Run(Duration length) { RunUntil(now + length); }
  void Settle() { Run(100ms); }

  Time now{};
  Filter filter;
  std::map<std::string, int> sent;
  std::multimap<Time, std::pair<CmRoute, wire::CmMessage>> flying;
  std::vector<std::unique_ptr<Node>> nodes;
};

inline Node::Node(Net& network, const char* address, uint64_t seed)
    : net(network),
      addresses{*NetAddress::Parse(address)},
      device{.name = "rxe0",
             .index = 0,
             .node_guid = 0x1111111111111111ull * seed,
             .active_mtu = IBV_MTU_1024,
             .ack_delay = 15,
             .max_rd_atom = 128,
             .profile = &profile},
      generator(seed),
      cm({*this, *this, *this, *this}, counters, generator, trace) {}

inline Status Node::Send(Time, const CmRoute& route, const wire::CmMessage& message) {
  if (port_down) return Fail(ETIMEDOUT);
  net.Carry(route, message);
  return {};
}

struct TakenEvent {
  EventType type;
  int status;
  uint64_t uid;
  uint32_t id;
  rdma_ucm_event_resp raw;
};

// A program on a node: one group, one channel, and ids whose uid is 100 + their handle.
class Program {
 public:
  Program(Node& node, uint32_t group) : node(node), group(static_cast<GroupId>(group)) {
    channel = *node.cm.CreateChannel(this->group);
  }
  template <class In>
  Result<std::vector<std::byte>> Call(uint32_t command, const In& in) {
    std::vector<std::byte> out(1024);
    const auto filled = node.cm.Call(node.net.now, group, ProcessId::kNone, channel.handle, command,
                                     std::as_bytes(std::span(&in, 1)), out);
    if (!filled) return tl::make_unexpected(filled.error());
    out.resize(*filled);
    return out;
  }
  template <class In>
  int Errno(uint32_t command, const In& in) {
    const auto done = Call(command, in);
    return done ? 0 : done.error().code;
  }
  template <class Response, class In>
  Response Ask(uint32_t command, const In& in) {
    const auto bytes = Call(command, in);
    Response response = {};
    EXPECT_TRUE(bytes.has_value());
    if (bytes) std::memcpy(&response, bytes->data(), std::min(bytes->size(), sizeof response));
    return response;
  }

  uint32_t Create(uint16_t port_space = RDMA_PS_TCP) {
    rdma_ucm_create_id in = {};
    in.uid = ++last_uid_;
    in.ps = port_space;
    return Ask<rdma_ucm_create_id_resp>(RDMA_USER_CM_CMD_CREATE_ID, in).id;
  }
  static void Address(__kernel_sockaddr_storage& storage, uint16_t& size, const char* address,
                      uint16_t port) {
    const NetAddress parsed = *NetAddress::Parse(address);
    const uint16_t family = parsed.IsIpv4() ? AF_INET : AF_INET6;
    size = static_cast<uint16_t>(EmitSocketAddress({family, parsed, port, 0, 0},
                                                   std::as_writable_bytes(std::span(&storage, 1))));
  }
  int Bind(uint32_t id, const char* address, uint16_t port) {
    rdma_ucm_bind in = {};
    in.id = id;
    Address(in.addr, in.addr_size, address, port);
    return Errno(RDMA_USER_CM_CMD_BIND, in);
  }
  int Listen(uint32_t id, uint32_t backlog = 0) {
    return Errno(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, backlog});
  }
  int Resolve(uint32_t id, const char* destination, uint16_t port, const char* source = nullptr) {
    rdma_ucm_resolve_addr in = {};
    in.id = id;
    in.timeout_ms = 2000;
    Address(in.dst_addr, in.dst_size, destination, port);
    if (source != nullptr) Address(in.src_addr, in.src_size, source, 0);
    return Errno(RDMA_USER_CM_CMD_RESOLVE_ADDR, in);
  }
  int Route(uint32_t id) {
    return Errno(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 2000});
  }
  static rdma_ucm_conn_param Parameters(uint32_t qpn, const std::string& data = {}) {
    rdma_ucm_conn_param in = {};
    in.qp_num = qpn;
    in.private_data_len = static_cast<uint8_t>(data.size());
    std::copy(data.begin(), data.end(), in.private_data);
    in.responder_resources = 3;
    in.initiator_depth = 5;
    in.retry_count = 6;
    in.rnr_retry_count = 7;
    in.valid = 1;
    return in;
  }
  int Connect(uint32_t id, const rdma_ucm_conn_param& parameters) {
    rdma_ucm_connect in = {};
    in.id = id;
    in.conn_param = parameters;
    return Errno(RDMA_USER_CM_CMD_CONNECT, in);
  }
  int Accept(uint32_t id, uint64_t uid, const rdma_ucm_conn_param& parameters) {
    rdma_ucm_accept in = {};
    in.id = id;
    in.uid = uid;
    in.conn_param = parameters;
    return Errno(RDMA_USER_CM_CMD_ACCEPT, in);
  }
  int Establish(uint32_t id) { return Accept(id, 0, {}); }
  int Reject(uint32_t id, const std::string& data = {}) {
    rdma_ucm_reject in = {};
    in.id = id;
    in.private_data_len = static_cast<uint8_t>(data.size());
    std::copy(data.begin(), data.end(), in.private_data);
    return Errno(RDMA_USER_CM_CMD_REJECT, in);
  }
  int Disconnect(uint32_t id) {
    return Errno(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{id});
  }
  int Destroy(uint32_t id) {
    rdma_ucm_destroy_id in = {};
    in.id = id;
    return Errno(RDMA_USER_CM_CMD_DESTROY_ID, in);
  }
  Result<ib_uverbs_qp_attr> QpAttr(uint32_t id, uint32_t state) {
    rdma_ucm_init_qp_attr in = {};
    in.id = id;
    in.qp_state = state;
    const auto bytes = Call(RDMA_USER_CM_CMD_INIT_QP_ATTR, in);
    if (!bytes) return tl::make_unexpected(bytes.error());
    ib_uverbs_qp_attr attributes;
    std::memcpy(&attributes, bytes->data(), sizeof attributes);
    return attributes;
  }
  std::optional<TakenEvent> Take() {
    const auto bytes = Call(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{});
    if (!bytes) {
      EXPECT_EQ(bytes.error().code, kNothingQueued);
      return std::nullopt;
    }
    TakenEvent event = {};
    std::memcpy(&event.raw, bytes->data(), sizeof event.raw);
    event.type = static_cast<EventType>(event.raw.event);
    event.status = static_cast<int32_t>(event.raw.status);
    event.uid = event.raw.uid;
    event.id = event.raw.id;
    return event;
  }
  // Takes the next event, which must be this one.
  TakenEvent Expect(EventType type, int status = 0) {
    const auto event = Take();
    if (!event) {
      ADD_FAILURE() << "no event, wanted " << EventName(type);
      return {};
    }
    EXPECT_STREQ(EventName(event->type), EventName(type));
    EXPECT_EQ(event->status, status);
    return *event;
  }
  void ExpectNothing() {
    if (const auto event = Take()) ADD_FAILURE() << "unexpected " << EventName(event->type);
  }
  uint32_t Listener(const char* address, uint16_t port, uint32_t backlog = 0,
                    uint16_t port_space = RDMA_PS_TCP) {
    const uint32_t id = Create(port_space);
    EXPECT_EQ(Bind(id, address, port), 0);
    EXPECT_EQ(Listen(id, backlog), 0);
    return id;
  }
  // Returns an id with a resolved route, and takes its events.
  uint32_t Resolved(const char* destination, uint16_t port, uint16_t port_space = RDMA_PS_TCP) {
    const uint32_t id = Create(port_space);
    EXPECT_EQ(Resolve(id, destination, port), 0);
    Expect(EventType::kAddrResolved);
    EXPECT_EQ(Route(id), 0);
    Expect(EventType::kRouteResolved);
    return id;
  }

  Node& node;
  GroupId group;
  CmChannel channel;

 private:
  uint64_t last_uid_ = 100;
};

// A client on 10.0.0.1, and a server on 10.0.0.2 that listens on port 7000.
class CmTest : public testing::Test {
 protected:
  static constexpr uint32_t kClientQpn = 17, kServerQpn = 23;
  static constexpr uint64_t kServerUid = 777;

  // Sends a REQ and takes its CONNECT_REQUEST.
  void Request() {
    active = client.Resolved("10.0.0.2", 7000);
    ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn, "hello")), 0);
    net.Settle();
    passive = server.Expect(EventType::kConnectRequest).id;
  }
  void Accept() {
    ASSERT_EQ(server.Accept(passive, kServerUid, Program::Parameters(kServerQpn, "welcome")), 0);
  }
  void Establish() {
    Request();
    Accept();
    net.Settle();
    client.Expect(EventType::kConnectResponse);
    ASSERT_EQ(client.Establish(active), 0);
    net.Settle();
    server.Expect(EventType::kEstablished);
  }
  // Drops the first `count` messages of a kind.
  void Lose(const std::string& name, int count = 1) {
    net.filter = [name, count](const wire::CmMessage& message) mutable {
      return Net::Fate{.lost = wire::CmName(message.body) == name && count-- > 0};
    };
  }
  // Ends both programs, and checks that no object remains after all timers have expired.
  void EndAll() {
    client_node.cm.GroupGone(net.now, client.group);
    server_node.cm.GroupGone(net.now, server.group);
    net.Run(24h);
    for (const auto& node : net.nodes) {
      EXPECT_EQ(node->cm.ids(), 0u);
      EXPECT_EQ(node->cm.connections(), 0u);
      EXPECT_EQ(node->counters.size(), 0u);
      EXPECT_EQ(node->cm.NextDeadline(), std::nullopt);
    }
  }

  Net net;
  Node& client_node = net.Add("10.0.0.1");
  Node& server_node = net.Add("10.0.0.2");
  Program client{client_node, 1};
  Program server{server_node, 2};
  uint32_t listener = server.Listener("10.0.0.2", 7000);
  uint32_t active = 0, passive = 0;
};

}  // namespace rdmaemu::cm
