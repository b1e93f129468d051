// Makes the parts of a Host from its options: devices with their profiles, addresses with the
// interfaces that carry them, and the UDP sockets.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/fault/programs.h"
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
  // The prefix length of the interface's network, counted as in NetPrefix. 0 means unknown. The
  // prefix of a single address (/32, /128) describes no network and counts as unknown.
  uint8_t prefix_bits = 0;
};
// Returns the addresses of all interfaces that are up, in the kernel's order (getifaddrs(3)).
std::vector<InterfaceAddress> InterfaceAddresses();

// A parsed --device option: NAME[=PROFILE][@IP[/BITS]]..., such as "rxe0", "rxe0=rxe",
// "nic=/home/me/nic.toml" or "mlx5_0=mlx5-roce@10.0.0.1/24@10.0.0.2". A profile is a file if it
// contains a '/' or ends in ".toml". Otherwise it is the name of a built-in profile. The path of a
// profile cannot contain '@'.
struct DeviceOption {
  std::string name;
  Profile profile;
  // The text of a profile from a file, together with its bases. Empty for a built-in profile.
  std::string profile_toml;
  // The texts after each '@'. Empty if the device shares the --address options.
  std::vector<std::string> addresses;
};
// Parses a --device option. For an unknown profile name, the message lists the built-in profiles.
// For a bad file, the message says where the error is.
OrMessage<DeviceOption> ParseDeviceOption(std::string_view text);
// Returns the device option that a profile without a device name means: "siw" gives "siw0=siw".
OrMessage<std::string> DeviceOfProfile(const std::string& profile);
bool IsProfileFile(std::string_view profile);

// Parses an --address option: "127.0.1.1", "10.77.0.1/24", "fe80::1%eth0/64". The result holds the
// address, the prefix of its network if the text has a prefix, and the interface if the text has a
// zone.
OrMessage<HostAddress> ParseAddressOption(std::string_view text);
// Parses a --gateway option, such as "10.77.0.254". A gateway is the next hop for destinations
// outside the host's networks.
OrMessage<NetAddress> ParseGatewayOption(std::string_view text);

// Parses a --silent-net option, such as "10.99.0.0/16". No address of such a network answers.
OrMessage<NetPrefix> ParseSilentNetOption(std::string_view text);

// Fills in the MTU and the index of the interface that carries the address. Does nothing if no
// interface carries the address. Also fills in the prefix of the address on that interface, unless
// the address already has a prefix.
void TakeFromInterface(const std::vector<InterfaceAddress>& machine, HostAddress& address);

// Reads the fault rules of a scenario file. The error message says where the file is wrong.
OrMessage<std::vector<fault::Rule>> ReadScenario(const std::string& path);
// Reads the programs of a scenario file.
OrMessage<std::vector<fault::Program>> ReadScenarioPrograms(const std::string& path);
// Returns a hash of the file's bytes as hexadecimal text. Returns an empty string if the file
// cannot be read.
std::string ScenarioMark(const std::string& path);
// Returns what is wrong with the options that have few values (payload_shortcuts, wire), if
// anything is.
std::optional<std::string> CheckChoices(const HostOptions& options);
// Parses a seed: a 64-bit decimal number such as "4711", or 0x and 64 hexadecimal digits for all
// 256 bits. Returns nullopt if the text is neither.
std::optional<RandomSeed> ParseSeed(std::string_view text);
// Returns a seed from the kernel's random numbers.
RandomSeed KernelSeed();
// Formats a seed so that ParseSeed reads the same seed.
std::string SeedText(const RandomSeed& seed);

// Fails when a device whose link layer is InfiniBand gets no LID from its first IPv4 address.
OrMessage<void> CheckLids(const HostConfig& config);

// Makes a host's configuration: its devices and addresses. Without --address, the addresses
// 127.0.0.1 and ::1 are on the wire, and the machine's other addresses are usable inside the host
// only. A device with '@' has exactly its own addresses. The --address options are assigned to the
// other devices in turn.
OrMessage<HostConfig> MakeHostConfig(const HostOptions& options,
                                     const std::vector<InterfaceAddress>& machine);

// Opens one socket for each address on the wire. If another process is about to close the port,
// waits for that process (port_owner.h). If the machine has no IPv6, removes the default address
// ::1 from `config` without an error.
OrMessage<UdpNetwork> OpenNetwork(const Registry& registry, const HostOptions& options,
                                  HostConfig& config);

}  // namespace rdmaemu::runtime
