// The 64 bits of data of an epoll event in the host process: a kind and a number.
#pragma once

#include <sys/epoll.h>

#include <cstdint>

namespace rdmaemu::runtime {

enum class EventKind : uint32_t {
  kListener,
  kConnection,  // number: the connection's number
  kClientExit,  // a client's pidfd; number: the connection's number; in CallServer's own epoll only
  kEnds,        // CallServer::ends_fd: a process has ended
  kDoorbell,    // a call on the connection's page, or queue doorbells in shared memory
  kUdpPort,     // number: index of the port
  kGroupPort,   // number: the group's number in UdpNetwork
  kRings,       // another host has written to a ring and woken up this host
  kSignal,
  kWake,  // time that is shared with other hosts has advanced
};

inline epoll_event EventFor(EventKind kind, uint32_t number, uint32_t events = EPOLLIN) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = uint64_t{static_cast<uint32_t>(kind)} << 32 | number;
  return event;
}
inline EventKind KindOf(const epoll_event& event) {
  return EventKind{static_cast<uint32_t>(event.data.u64 >> 32)};
}
inline uint32_t NumberOf(const epoll_event& event) { return static_cast<uint32_t>(event.data.u64); }

}  // namespace rdmaemu::runtime
