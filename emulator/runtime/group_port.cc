#include "emulator/runtime/group_port.h"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <cerrno>

#include "emulator/runtime/socket_options.h"
#include "emulator/wire/packet.h"

namespace rdmaemu::runtime {

Result<GroupPort> GroupPort::Open(const NetAddress& local, uint32_t interface_index,
                                  const NetAddress& group) {
  if (!group.IsIpv4()) return Fail(EAFNOSUPPORT);
  UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return Fail(errno);
  SetBufferSizes(fd.get());
  SetOption(fd.get(), SOL_UDP, UDP_GRO, 1);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(wire::kRoceUdpPort);
  name.sin_addr.s_addr = htonl(group.ToIpv4());
  ip_mreqn membership{};
  membership.imr_multiaddr = name.sin_addr;
  if (local.IsIpv4()) membership.imr_address.s_addr = htonl(local.ToIpv4());
  membership.imr_ifindex = static_cast<int>(interface_index);
  // IP_MULTICAST_ALL must be 0. Otherwise the socket also receives the group's datagrams from other
  // links on which a program of this machine has joined the group.
  if (!SetOption(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1) ||
      !SetOption(fd.get(), IPPROTO_IP, IP_MULTICAST_ALL, 0) ||
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0 ||
      !SetOption(fd.get(), IPPROTO_IP, IP_ADD_MEMBERSHIP, membership)) {
    return Fail(errno);
  }
  return GroupPort(std::move(fd), local, group);
}

}  // namespace rdmaemu::runtime
