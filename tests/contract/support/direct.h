// Direct calls of connection management, with both ends in this process. For tests of a call's
// effect on channels, threads, descriptors and memory. Declare the objects in this order: channels,
// then ids, then events. Their destructors then free them in the order that the API requires.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/contract/support/environment.h"
#include "tests/contract/support/numbers.h"
#include "tests/contract/support/side.h"

namespace rdma_contract {

struct DestroyEventChannel {
  void operator()(rdma_event_channel* channel) const { rdma_destroy_event_channel(channel); }
};
struct DestroyCmId {
  void operator()(rdma_cm_id* id) const { rdma_destroy_ep(id); }  // and its queues
};
struct AckCmEvent {
  void operator()(rdma_cm_event* event) const { rdma_ack_cm_event(event); }
};
struct FreeAddrInfo {
  void operator()(rdma_addrinfo* info) const { rdma_freeaddrinfo(info); }
};
using EventChannel = std::unique_ptr<rdma_event_channel, DestroyEventChannel>;
using CmId = std::unique_ptr<rdma_cm_id, DestroyCmId>;
using CmEvent = std::unique_ptr<rdma_cm_event, AckCmEvent>;
using AddrInfo = std::unique_ptr<rdma_addrinfo, FreeAddrInfo>;

inline EventChannel NewChannel() { return EventChannel(rdma_create_event_channel()); }
// Without a channel the id is synchronous.
inline CmId NewId(rdma_event_channel* channel, rdma_port_space space = RDMA_PS_TCP,
                  void* context = nullptr) {
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(rdma_create_id(channel, &id, context, space), 0) << strerror(errno);
  return CmId(id);
}

// librdmacm's calls return -1 and set errno.
inline int ErrnoOf(int result) { return result == 0 ? 0 : errno; }

inline bool IsReadable(const rdma_event_channel* channel, int limit_ms = 0) {
  pollfd waiting{channel->fd, POLLIN, 0};
  return poll(&waiting, 1, limit_ms) == 1 && (waiting.revents & POLLIN) != 0;
}
inline CmEvent NextEvent(rdma_event_channel* channel, int limit_ms = kPatience_ms) {
  rdma_cm_event* event = nullptr;
  if (!IsReadable(channel, limit_ms)) return nullptr;
  EXPECT_EQ(rdma_get_cm_event(channel, &event), 0) << strerror(errno);
  return CmEvent(event);
}
// Fetches the event. The fetch makes the id change its state.
inline CmEvent Expect(rdma_event_channel* channel, rdma_cm_event_type type, int status = 0) {
  CmEvent event = NextEvent(channel);
  EXPECT_TRUE(event) << "no " << rdma_event_str(type);
  if (event) {
    EXPECT_STREQ(rdma_event_str(event->event), rdma_event_str(type));
    EXPECT_EQ(event->status, status);
  }
  return event;
}

inline sockaddr* Cast(sockaddr_in& address) { return reinterpret_cast<sockaddr*>(&address); }
inline sockaddr* Cast(sockaddr_in6& address) { return reinterpret_cast<sockaddr*>(&address); }
inline int BindTo(rdma_cm_id* id, const std::string& address, uint16_t port = 0) {
  sockaddr_in to = SocketAddress(address, port);
  return ErrnoOf(rdma_bind_addr(id, Cast(to)));
}
inline int ResolveTo(rdma_cm_id* id, const std::string& address, uint16_t port) {
  sockaddr_in to = SocketAddress(address, port);
  return ErrnoOf(rdma_resolve_addr(id, nullptr, Cast(to), 2000));
}

inline ibv_qp_init_attr SmallQueues(ibv_qp_type type = IBV_QPT_RC) {
  ibv_qp_init_attr init{};
  init.cap = {4, 4, 1, 1, 16};
  init.qp_type = type;
  init.sq_sig_all = 1;
  return init;
}
inline int MakeQueues(rdma_cm_id* id) {
  ibv_qp_init_attr init = SmallQueues(id->qp_type);
  return ErrnoOf(rdma_create_qp(id, nullptr, &init));
}
inline ibv_qp_state StateOf(ibv_qp* qp) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
  return attr.qp_state;
}

// Returns whether `done` is still not ready after kQuiet_ms, which is long enough for the result.
template <typename T>
bool StillWaits(const std::future<T>& done) {
  return done.wait_for(std::chrono::milliseconds(kQuiet_ms)) == std::future_status::timeout;
}
template <typename T>
bool Ends(const std::future<T>& done) {
  return done.wait_for(std::chrono::milliseconds(kPatience_ms)) == std::future_status::ready;
}

class DirectTest : public testing::Test {
 protected:
  const std::string here = LocalAddress();
  EventChannel channel = NewChannel();  // the active side's
  EventChannel passive_channel = NewChannel();

  CmId Listener(rdma_event_channel* on, rdma_port_space space = RDMA_PS_TCP, int backlog = 8) {
    CmId id = NewId(on, space);
    EXPECT_EQ(BindTo(id.get(), here), 0) << strerror(errno);
    EXPECT_EQ(rdma_listen(id.get(), backlog), 0) << strerror(errno);
    return id;
  }
  // Returns an id on the active side's channel, with its route resolved.
  CmId Resolved(uint16_t port, rdma_port_space space = RDMA_PS_TCP) {
    CmId id = NewId(channel.get(), space);
    EXPECT_EQ(ResolveTo(id.get(), here, port), 0);
    Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT_EQ(rdma_resolve_route(id.get(), 2000), 0) << strerror(errno);
    Expect(channel.get(), RDMA_CM_EVENT_ROUTE_RESOLVED);
    return id;
  }
  // Returns an id with its own queues that has sent a connection request to `listener`.
  CmId Requesting(const rdma_cm_id* listener, const std::string& private_data = {}) {
    CmId id = Resolved(PortOf(listener), listener->ps);
    EXPECT_EQ(MakeQueues(id.get()), 0);
    rdma_conn_param param = ParametersWith(private_data);
    EXPECT_EQ(rdma_connect(id.get(), &param), 0) << strerror(errno);
    return id;
  }
  // The parameters contain pointers to the caller's bytes.
  static rdma_conn_param ParametersWith(std::string_view private_data) {
    rdma_conn_param param{};
    param.private_data = private_data.empty() ? nullptr : private_data.data();
    param.private_data_len = static_cast<uint8_t>(private_data.size());
    param.responder_resources = param.initiator_depth = 1;
    param.retry_count = param.rnr_retry_count = 7;
    return param;
  }
  static uint16_t PortOf(const rdma_cm_id* id) {
    return ntohs(rdma_get_src_port(const_cast<rdma_cm_id*>(id)));
  }
  // Returns the id of the next request on a channel, and acknowledges the event.
  CmId NextRequest(rdma_event_channel* on) {
    const CmEvent event = Expect(on, RDMA_CM_EVENT_CONNECT_REQUEST);
    return CmId(event ? event->id : nullptr);
  }
};

// Two connected ids of this process, each on its own channel. All events are acknowledged.
class ConnectedTest : public DirectTest {
 protected:
  void Establish() {
    listener = Listener(passive_channel.get());
    active = Requesting(listener.get());
    passive = NextRequest(passive_channel.get());
    ASSERT_TRUE(passive);
    ASSERT_EQ(MakeQueues(passive.get()), 0);
    ASSERT_EQ(rdma_accept(passive.get(), nullptr), 0) << strerror(errno);
    Expect(channel.get(), RDMA_CM_EVENT_ESTABLISHED);
    Expect(passive_channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  }
  CmId listener, active, passive;
};

}  // namespace rdma_contract
