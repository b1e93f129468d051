// Multicast groups of RDMA CM ids: steps that Side does not have, and a fixture with members on
// this machine and on the peer's.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <string>

#include "tests/contract/support/objects.h"
#include "tests/contract/support/side.h"
#include "tests/contract/support/state.h"

namespace rdma_contract {

inline constexpr uint32_t kQkey = 0x01234567;  // RDMA_UDP_QKEY
inline constexpr uint32_t kMulticastQpn = 0xffffff;
inline constexpr uint32_t kRouteBytes = 40;
inline constexpr uint32_t kBytes = 200;

// ---- steps that Side does not have

inline sockaddr_storage SockaddrOf(const char* group) {
  sockaddr_storage storage{};
  auto& ipv6 = reinterpret_cast<sockaddr_in6&>(storage);
  if (inet_pton(AF_INET6, group, &ipv6.sin6_addr) == 1) {
    ipv6.sin6_family = AF_INET6;
  } else {
    const sockaddr_in ipv4 = SocketAddress(group, 0);
    memcpy(&storage, &ipv4, sizeof ipv4);
  }
  return storage;
}

struct GroupOrder {
  int id;
  char group[INET6_ADDRSTRLEN];
  uint16_t flags;      // RDMA_MC_JOIN_FLAG_*
  uint32_t comp_mask;  // 0: rdma_join_multicast
  uint64_t context;
};
inline GroupOrder OrderOf(int id, const std::string& group, uint64_t context = 0) {
  GroupOrder order{id, {}, RDMA_MC_JOIN_FLAG_FULLMEMBER, 0, context};
  group.copy(order.group, sizeof order.group - 1);
  return order;
}
inline int JoinStep(State& state, const GroupOrder& order) {
  rdma_cm_id* id = state.ids[static_cast<size_t>(order.id)];
  sockaddr_storage group = SockaddrOf(order.group);
  auto* const address = reinterpret_cast<sockaddr*>(&group);
  auto* const context = reinterpret_cast<void*>(order.context);
  if (order.comp_mask == 0) return rdma_join_multicast(id, address, context) == 0 ? 0 : errno;
  rdma_cm_join_mc_attr_ex attributes{order.comp_mask, order.flags, address};
  return rdma_join_multicast_ex(id, &attributes, context) == 0 ? 0 : errno;
}
inline int LeaveStep(State& state, const GroupOrder& order) {
  sockaddr_storage group = SockaddrOf(order.group);
  return rdma_leave_multicast(state.ids[static_cast<size_t>(order.id)],
                              reinterpret_cast<sockaddr*>(&group)) == 0
             ? 0
             : errno;
}

struct JoinEvent {
  bool found = false;
  rdma_cm_event_type event{};
  int status = 0;
  int id = -1;
  uint64_t context = 0;
  rdma_ud_param ud{};
};
inline JoinEvent NextJoinStep(State& state, const int& limit_ms) {
  JoinEvent copy;
  pollfd waiting{state.channel->fd, POLLIN, 0};
  rdma_cm_event* event = nullptr;
  if (poll(&waiting, 1, limit_ms) <= 0 || rdma_get_cm_event(state.channel, &event) != 0) {
    return copy;
  }
  copy = {true, event->event, event->status, -1, 0, event->param.ud};
  copy.context = reinterpret_cast<uint64_t>(event->param.ud.private_data);
  for (size_t i = 0; i < state.ids.size(); i++) {
    if (state.ids[i] == event->id) copy.id = static_cast<int>(i);
  }
  rdma_ack_cm_event(event);
  return copy;
}

struct AttachOrder {
  int qp;
  ibv_gid group;
  bool attach;
};
inline int AttachStep(State& state, const AttachOrder& order) {
  ibv_qp* qp = state.qps[static_cast<size_t>(order.qp)].qp;
  return order.attach ? ibv_attach_mcast(qp, &order.group, 0)
                      : ibv_detach_mcast(qp, &order.group, 0);
}

struct AhOrder {
  ibv_gid group;
  int gid_index;
};
inline int GroupAhStep(State& state, const AhOrder& order) {
  ibv_ah_attr attributes{};
  attributes.is_global = 1;
  attributes.port_num = 1;
  attributes.grh.dgid = order.group;
  attributes.grh.sgid_index = static_cast<uint8_t>(order.gid_index);
  attributes.grh.hop_limit = 64;
  ibv_ah* ah = ibv_create_ah(state.pd, &attributes);
  if (ah == nullptr) return -errno;
  state.ahs.push_back(ah);
  return static_cast<int>(state.ahs.size()) - 1;
}
inline int GidIndexStep(State& state, const AhOrder& own) {
  ibv_context* context = state.pd->context;
  ibv_gid gid;
  for (int i = 0; ibv_query_gid(context, 1, i, &gid) == 0; i++) {
    if (memcmp(&gid, &own.group, sizeof gid) == 0) return i;
  }
  return -1;
}
// ---- the fixture

// A side with an id, its QP, and memory for messages.
struct Member {
  Side* side = nullptr;
  int id = -1, qp = -1, ah = -1;
  Buffer sink{}, source{};
  Region to{}, from{};
};

class Multicast : public testing::Test {
 protected:
  // Returns a group that other simultaneous runs of these tests are unlikely to use.
  std::string NewGroup() {
    std::random_device random;
    return "239." + std::to_string(1 + random() % 250) + "." + std::to_string(random() % 250) +
           "." + std::to_string(1 + random() % 250);
  }

  Member Bound(Side& side) {
    Member member{.side = &side, .id = side.CreateId(RDMA_PS_UDP)};
    EXPECT_GE(member.id, 0);
    EXPECT_EQ(side.Bind(member.id, side.address(), 0), 0);
    return member;
  }
  void GiveQp(Member& member) {
    member.qp = member.side->CreateCmQp(member.id);
    ASSERT_GE(member.qp, 0);
    member.source = Allocate(kBytes);
    member.sink = Allocate(kBytes + kRouteBytes);
    member.from = member.side->Register(member.source);
    member.to = member.side->Register(member.sink);
  }
  Member WithQp(Side& side) {
    Member member = Bound(side);
    GiveQp(member);
    return member;
  }
  Member Joined(Side& side, const std::string& group) {
    Member member = WithQp(side);
    Join(member, group);
    return member;
  }
  int Ask(const Member& member, const std::string& group, uint64_t context = 0) {
    return member.side->worker().Call(&JoinStep, OrderOf(member.id, group, context));
  }
  int AskEx(const Member& member, const std::string& group, uint16_t flags, uint32_t comp_mask) {
    GroupOrder order = OrderOf(member.id, group);
    order.flags = flags;
    order.comp_mask = comp_mask;
    return member.side->worker().Call(&JoinStep, order);
  }
  int AskSendOnly(const Member& member, const std::string& group) {
    return AskEx(member, group, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, kAddressAndFlags);
  }
  static JoinEvent NextEvent(Side& side, int limit_ms = kPatience_ms) {
    return side.worker().Call(&NextJoinStep, limit_ms);
  }
  JoinEvent ExpectJoin(const Member& member) {
    const JoinEvent event = NextEvent(*member.side);
    EXPECT_TRUE(event.found);
    EXPECT_EQ(event.event, RDMA_CM_EVENT_MULTICAST_JOIN) << rdma_event_str(event.event);
    EXPECT_EQ(event.status, 0);
    EXPECT_EQ(event.id, member.id);
    return event;
  }
  JoinEvent Join(const Member& member, const std::string& group, uint64_t context = 0) {
    EXPECT_EQ(Ask(member, group, context), 0);
    return ExpectJoin(member);
  }
  int Leave(const Member& member, const std::string& group) {
    return member.side->worker().Call(&LeaveStep, OrderOf(member.id, group));
  }
  int Attach(const Member& member, const ibv_gid& group) {
    return member.side->worker().Call(&AttachStep, AttachOrder{member.qp, group, true});
  }
  int Detach(const Member& member, const ibv_gid& group) {
    return member.side->worker().Call(&AttachStep, AttachOrder{member.qp, group, false});
  }

  void Post(Member& member) {
    memset(member.sink.data, 0, member.sink.size);
    ASSERT_EQ(member.side->PostReceive(member.qp, ReceiveInto(1, member.sink, member.to)), 0);
  }
  // Creates the address handle from the group's address alone, as a program without other
  // information does.
  void Send(Member& member, const std::string& group, uint32_t seed, uint32_t qkey = kQkey) {
    if (member.ah < 0) {
      const AhOrder own{GidOf(member.side->address()), 0};
      const int index = member.side->worker().Call(&GidIndexStep, own);
      ASSERT_GE(index, 0);
      member.ah = member.side->worker().Call(&GroupAhStep, AhOrder{GidOf(group), index});
      ASSERT_GE(member.ah, 0);
    }
    FillPattern(member.source.bytes(), seed);
    WorkRequest request{
        .wr_id = 2, .ah = member.ah, .remote_qpn = kMulticastQpn, .remote_qkey = qkey};
    request.Add(member.source.address(), kBytes, member.from.lkey);
    ASSERT_EQ(member.side->PostSend(member.qp, request), 0);
    const Completion sent = member.side->Poll(member.qp, Queue::kSend);
    ASSERT_EQ(sent.wc.status, IBV_WC_SUCCESS) << Describe(sent);
  }
  void ExpectDatagram(Member& member, uint32_t seed) {
    const Completion received = member.side->Poll(member.qp, Queue::kReceive);
    ASSERT_TRUE(received.found);
    ASSERT_EQ(received.wc.status, IBV_WC_SUCCESS) << Describe(received);
    EXPECT_EQ(received.wc.byte_len, kBytes + kRouteBytes);
    EXPECT_EQ(FirstDifference(member.sink.bytes().subspan(kRouteBytes), seed), -1);
  }
  void ExpectNothing(Member& member) {
    const Completion received = member.side->Poll(member.qp, Queue::kReceive, kQuiet_ms);
    EXPECT_FALSE(received.found) << Describe(received);
  }

  static constexpr uint32_t kAddressAndFlags =
      RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  const std::string group = NewGroup();
  Side here{Place::kThisProcess};
  Side beside{Place::kLocalProcess};
  Side there{Place::kPeersMachine};
};

}  // namespace rdma_contract
