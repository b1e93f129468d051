// From options to what a Host is made of: devices with their profiles, addresses with the
// interfaces that carry them, the UDP sockets.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/host/host.h"
#include "emulator/runtime/registry.h"
#include "emulator/runtime/udp_network.h"

namespace rdmaemu::runtime {

// An address of one of the machine's interfaces.
struct InterfaceAddress {
  NetAddress address;
  uint32_t interface_index = 0;
  uint32_t mtu_bytes = 1500;
  bool loopback = false;
  // Of its network, as NetPrefix counts them; 0: unknown. The prefix of a single address (/32,
  // /128) says nothing of a network and counts as unknown.
  uint8_t prefix_bits = 0;
};
// All that are up, in the kernel's order (getifaddrs(3)).
std::vector<InterfaceAddress> InterfaceAddresses();

// "rxe0", "rxe0=rxe" or "nic=/home/me/nic.toml": a profile is the name of a built-in one, or a file
// when it has a '/' or ends in ".toml". The message lists the profiles when there is none of that
// name, and says where a file is wrong.
struct DeviceOption {
  std::string name;
  Profile profile;
  std::string profile_toml;  // of a file; empty: built in
};
OrMessage<DeviceOption> ParseDeviceOption(std::string_view text);
// The device option that a profile alone stands for: "siw" gives "siw0=siw".
OrMessage<std::string> DeviceOfProfile(const std::string& profile);
bool IsProfileFile(std::string_view profile);

// "127.0.1.1", "10.77.0.1/24", "fe80::1%eth0/64": the address, the prefix of its network where one
// is given, and, where a zone is named, its interface.
OrMessage<HostAddress> ParseAddressOption(std::string_view text);
// "10.77.0.254": the next hop of destinations outside the host's networks.
OrMessage<NetAddress> ParseGatewayOption(std::string_view text);

// "10.99.0.0/16": where nobody answers.
OrMessage<NetPrefix> ParseSilentNetOption(std::string_view text);

// Fills in the MTU and the number of the interface that carries the address, where one does, and
// the prefix of the address there, unless the address has a prefix already.
void TakeFromInterface(const std::vector<InterfaceAddress>& machine, HostAddress& address);

// The fault rules of a scenario file. The message says where it is wrong.
OrMessage<std::vector<fault::Rule>> ReadScenario(const std::string& path);
// A number that is another one when the file has other bytes; empty when it cannot be read.
std::string ScenarioMark(const std::string& path);
// "4711", a number of 64 bits, or 0x and 64 hexadecimal digits, the whole of a seed; nothing when
// it is neither.
std::optional<RandomSeed> ParseSeed(std::string_view text);
// The same the other way.
std::string SeedText(const RandomSeed& seed);

// Devices and addresses of a host. Without addresses: 127.0.0.1 and ::1 on the wire, and the
// machine's own other addresses inside only. The addresses are dealt out to the devices in turn.
OrMessage<HostConfig> MakeHostConfig(const HostOptions& options,
                                     const std::vector<InterfaceAddress>& machine);

// One socket for each address on the wire. Waits for a port whose owner ends (port_owner.h). Of the
// default addresses ::1 may be missing (a machine without IPv6): it is then taken out of the
// config.
OrMessage<UdpNetwork> OpenNetwork(const Registry& registry, const HostOptions& options,
                                  HostConfig& config);

}  // namespace rdmaemu::runtime
