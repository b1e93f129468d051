// What an epoll event of the host process is about: a kind and a number in its 64 bits of data.
#pragma once

#include <sys/epoll.h>

#include <cstdint>

namespace rdmaemu::runtime {

enum class EventKind : uint32_t {
  kListener,
  kConnection,  // number: the connection's
  kClientExit,  // a client's pidfd; number: the connection's
  kDoorbell,    // a call on the connection's page, or a queue: the bells are in shared memory
  kUdpPort,     // number: index of the port
  kGroupPort,   // number: the group's in UdpNetwork
  kSignal,
  kWake,  // time that is shared with other hosts has moved
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
