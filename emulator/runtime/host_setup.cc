#include "emulator/runtime/host_setup.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "emulator/host/faults/host_faults.h"
#include "emulator/runtime/clock.h"
#include "emulator/runtime/port_owner.h"

namespace rdmaemu::runtime {
namespace {

constexpr std::string_view kDefaultDevice = "rxe0";
constexpr std::string_view kDefaultProfile = "rxe";
constexpr std::string_view kLongSeed = "0x";
constexpr size_t kLongSeedDigits = 2 + 64;
constexpr size_t kMaxSilentNets = 64;
constexpr size_t kMaxGateways = 8;

std::optional<NetAddress> FromSocketAddress(const sockaddr* name) {
  if (name == nullptr) return std::nullopt;
  if (name->sa_family == AF_INET) {
    return NetAddress::Ipv4(ntohl(reinterpret_cast<const sockaddr_in*>(name)->sin_addr.s_addr));
  }
  if (name->sa_family != AF_INET6) return std::nullopt;
  NetAddress address;
  std::memcpy(address.bytes.data(), &reinterpret_cast<const sockaddr_in6*>(name)->sin6_addr, 16);
  return address;
}

// Returns the prefix length as NetPrefix counts it. Returns 0 without a netmask, and for the
// netmask of a single address.
uint8_t PrefixBitsOf(const sockaddr* netmask) {
  const std::optional<NetAddress> mask = FromSocketAddress(netmask);
  if (!mask) return 0;
  const bool is_ipv4 = netmask->sa_family == AF_INET;
  int bits = is_ipv4 ? 96 : 0;
  for (size_t byte = is_ipv4 ? 12 : 0; byte < mask->bytes.size(); byte++) {
    bits += std::popcount(mask->bytes[byte]);
  }
  return bits == 128 ? 0 : static_cast<uint8_t>(bits);
}

uint32_t MtuOf(int socket_fd, const char* interface) {
  ifreq request{};
  std::strncpy(request.ifr_name, interface, sizeof request.ifr_name - 1);
  if (ioctl(socket_fd, SIOCGIFMTU, &request) != 0 || request.ifr_mtu <= 0) return 1500;
  return static_cast<uint32_t>(request.ifr_mtu);
}

// Returns the interface that carries an address. The loopback interface carries all of 127.0.0.0/8.
const InterfaceAddress* Carrier(const std::vector<InterfaceAddress>& machine,
                                const NetAddress& address, uint32_t interface_index) {
  for (const InterfaceAddress& candidate : machine) {
    if (candidate.address == address &&
        (interface_index == 0 || candidate.interface_index == interface_index)) {
      return &candidate;
    }
  }
  if (!address.IsLoopback()) return nullptr;
  const auto loopback = std::find_if(machine.begin(), machine.end(),
                                     [](const InterfaceAddress& each) { return each.loopback; });
  return loopback == machine.end() ? nullptr : &*loopback;
}

bool HaveOwnAddresses(const std::vector<std::string>& devices) {
  return std::ranges::any_of(
      devices, [](const std::string& device) { return device.find('@') != std::string::npos; });
}

// `own` has the addresses of each device that has its own. Returns these, and behind them the
// --address options.
OrMessage<std::vector<HostAddress>> ChooseAddresses(const HostOptions& options,
                                                    const std::vector<std::string>& own,
                                                    const std::vector<InterfaceAddress>& machine) {
  std::vector<HostAddress> chosen;
  if (options.addresses.empty() && !HaveOwnAddresses(options.devices)) {
    for (const char* text : {"127.0.0.1", "::1"}) {
      chosen.push_back({.address = *NetAddress::Parse(text)});
    }
    for (const InterfaceAddress& own : machine) {
      // A link-local address identifies a host only together with an interface. RDMA CM ids within
      // one host cannot use such an address. Entry 0 of the GID table is the device's own
      // link-local GID.
      if (own.loopback || own.address.IsLinkLocal()) continue;
      chosen.push_back({.address = own.address, .on_wire = false});
    }
  }
  std::vector<std::string> texts = own;
  texts.insert(texts.end(), options.addresses.begin(), options.addresses.end());
  for (const std::string& text : texts) {
    const OrMessage<HostAddress> parsed = ParseAddressOption(text);
    if (!parsed) return tl::unexpected(parsed.error());
    const bool twice = std::any_of(chosen.begin(), chosen.end(), [&](const HostAddress& each) {
      return each.address == parsed->address;
    });
    if (twice) return tl::unexpected("address " + text + " is given twice; name it once");
    chosen.push_back(*parsed);
  }
  for (HostAddress& address : chosen) TakeFromInterface(machine, address);
  return chosen;
}

// Assigns the addresses of ChooseAddresses. `own_counts` has the number of own addresses of each
// device.
OrMessage<void> AssignAddresses(const std::vector<HostAddress>& addresses,
                                const std::vector<size_t>& own_counts,
                                std::vector<DeviceConfig>& devices) {
  auto next = addresses.begin();
  std::vector<DeviceConfig*> sharing;
  for (size_t i = 0; i < devices.size(); i++) {
    if (own_counts[i] == 0) sharing.push_back(&devices[i]);
    for (size_t n = 0; n < own_counts[i]; n++) devices[i].addresses.push_back(*next++);
  }
  const auto shared = static_cast<size_t>(addresses.end() - next);
  if (shared < sharing.size()) {
    return tl::unexpected("device " + sharing[shared]->name +
                          " has no address: give at least one --address a device, or name the"
                          " device's own, as in --device rxe0@10.77.0.1");
  }
  if (sharing.empty() && shared > 0) {
    return tl::unexpected("address " + next->address.ToString() +
                          " belongs to no device: each --device has its own addresses after '@'; "
                          "write the address there, or omit --address");
  }
  for (size_t i = 0; i < shared; i++) sharing[i % sharing.size()]->addresses.push_back(*next++);
  return {};
}

// Each gateway must be a neighbour of the host, as for `ip route add default via`.
OrMessage<std::vector<NetAddress>> ChooseGateways(const HostOptions& options,
                                                  const std::vector<HostAddress>& addresses) {
  if (options.gateways.size() > kMaxGateways) {
    return tl::unexpected("a host has at most " + std::to_string(kMaxGateways) + " gateways, and " +
                          std::to_string(options.gateways.size()) + " were requested");
  }
  std::vector<NetAddress> chosen;
  for (const std::string& text : options.gateways) {
    const OrMessage<NetAddress> gateway = ParseGatewayOption(text);
    if (!gateway) return tl::unexpected(gateway.error());
    const bool is_own = std::ranges::count(addresses, *gateway, &HostAddress::address) != 0;
    const bool is_near = std::ranges::any_of(addresses, [&](const HostAddress& own) {
      return own.on_wire && NetworkOf(own).Contains(*gateway);
    });
    if (is_own || !is_near) {
      return tl::unexpected(
          "the gateway " + text +
          (is_own ? " is an address of the host itself" : " is in none of the host's networks") +
          "; give the address of a neighbour, as in --address 10.77.0.1/24"
          " --gateway 10.77.0.254");
    }
    chosen.push_back(*gateway);
  }
  return chosen;
}

OrMessage<std::string> ReadProfileFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxProfileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.eof() || file.gcount() == 0) {
    const bool is_long = file.gcount() > static_cast<std::streamsize>(kMaxProfileBytes);
    return tl::unexpected("cannot read the device profile " + path + ": " +
                          (is_long ? "it is longer than " + std::to_string(kMaxProfileBytes) +
                                         " bytes, which no profile is"
                                   : "there is no such file, or it is empty or not readable") +
                          "; docs/profiles.md says how to write one");
  }
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

// Finds a profile's text by a built-in name or in a file. The path of a file is relative to the
// directory of the file that names it.
tl::expected<ProfileText, std::string> FindText(const std::string& profile,
                                                const std::string& named_in) {
  if (!IsProfileFile(profile)) return BuiltInProfileText(profile);
  const auto directory = std::filesystem::path(named_in).parent_path();
  const std::string path = (directory / profile).lexically_normal().string();
  OrMessage<std::string> read = ReadProfileFile(path);
  if (!read) return tl::unexpected(read.error());
  return ProfileText{path, std::move(*read)};
}

// Returns the profile of a built-in name or of a file. For a file, `toml` gets a text without
// bases, because a host reads no files.
OrMessage<Profile> FindProfile(const std::string& text, std::string& toml) {
  const auto found = FindText(text, "");
  if (!found) return tl::unexpected(found.error());
  auto profile = ParseProfile(found->toml, found->file, FindText);
  if (!profile || !IsProfileFile(text)) return profile;
  toml = ProfileToml(*profile);
  if (toml.size() > kMaxProfileBytes) {
    return tl::unexpected("the device profile " + text + " has more than " +
                          std::to_string(kMaxProfileBytes) +
                          " bytes together with its bases; shorten its pkeys");
  }
  return profile;
}

// The interval between two attempts to open a port while its owner exits.
constexpr auto kPortRetry = std::chrono::milliseconds(5);

// Opens the port. Waits for an owner that is about to close it.
Result<UdpPort> OpenPort(const Registry& registry, const HostAddress& address) {
  const auto start = RealNow();
  for (;;) {
    Result<UdpPort> port = UdpPort::Open(address.address, address.interface_index);
    if (port || port.error().code != EADDRINUSE) return port;
    const Duration patience = FindPortOwner(registry, address.address).patience;
    if (RealNow() - start >= patience) return port;
    std::this_thread::sleep_for(kPortRetry);
  }
}

std::string BindFailure(const Registry& registry, const NetAddress& address, int error) {
  const std::string text = address.ToString();
  if (error == EADDRINUSE) {
    return "cannot listen on UDP port 4791 of " + text + ": it is in use " +
           FindPortOwner(registry, address).description +
           "; or choose another address with --address";
  }
  constexpr uint32_t kLoopbackNet = 127;
  if (error == EADDRNOTAVAIL && address.IsIpv4() && address.ToIpv4() >> 24 == kLoopbackNet) {
    return "cannot use the address " + text +
           ": the loopback interface is down, as in a new network namespace; bring it up with"
           " `ip link set lo up`";
  }
  if (error == EADDRNOTAVAIL) {
    return "cannot use the address " + text +
           ": no interface of this machine has it; use one that `ip address` shows, or any of"
           " 127.0.0.0/8";
  }
  return "cannot open UDP port 4791 of " + text + ": " + std::strerror(error) +
         "; choose another address with --address";
}

}  // namespace

std::vector<InterfaceAddress> InterfaceAddresses() {
  std::vector<InterfaceAddress> addresses;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return addresses;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  const UniqueFd socket_fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    const std::optional<NetAddress> address = FromSocketAddress(each->ifa_addr);
    if (!address || (each->ifa_flags & IFF_UP) == 0) continue;
    addresses.push_back({*address, if_nametoindex(each->ifa_name),
                         MtuOf(socket_fd.get(), each->ifa_name),
                         (each->ifa_flags & IFF_LOOPBACK) != 0, PrefixBitsOf(each->ifa_netmask)});
  }
  return addresses;
}

bool IsProfileFile(std::string_view profile) {
  return profile.find('/') != profile.npos || profile.ends_with(".toml");
}

OrMessage<std::string> DeviceOfProfile(const std::string& profile) {
  std::string toml;
  const OrMessage<Profile> found = FindProfile(profile, toml);
  if (!found) return tl::unexpected(found.error());
  return found->device_prefix + "0=" + profile;
}

OrMessage<DeviceOption> ParseDeviceOption(std::string_view text) {
  const size_t at = text.find('@');
  std::vector<std::string> addresses;
  for (size_t from = at; from != text.npos;) {
    const size_t next = text.find('@', from + 1);
    addresses.emplace_back(text.substr(from + 1, next == text.npos ? next : next - from - 1));
    if (const auto parsed = ParseAddressOption(addresses.back()); !parsed) {
      return tl::unexpected("device option " + std::string(text) + ": " + parsed.error());
    }
    from = next;
  }
  text = text.substr(0, at);
  const size_t equals = text.find('=');
  const std::string name(text.substr(0, equals));
  const std::string profile_name(equals == text.npos ? kDefaultProfile : text.substr(equals + 1));
  if (!IsDeviceName(name)) {
    return tl::unexpected("\"" + name +
                          "\" cannot be a device's name: use 1 to 63 letters, digits,"
                          " '-' and '_', as in --device rxe0=rxe");
  }
  std::string toml;
  OrMessage<Profile> profile = FindProfile(profile_name, toml);
  if (!profile) return tl::unexpected(profile.error());
  return DeviceOption{name, std::move(*profile), std::move(toml), std::move(addresses)};
}

OrMessage<HostAddress> ParseAddressOption(std::string_view text) {
  const size_t percent = std::min(text.find('%'), text.size());
  const size_t zone_end = std::min(text.find('/', percent), text.size());
  const std::string without_zone =
      std::string(text.substr(0, percent)) + std::string(text.substr(zone_end));
  std::optional<HostAddress> found = ParseHostAddress(without_zone);
  if (!found) {
    return tl::unexpected("\"" + std::string(text) +
                          "\" is not the address of one host; give an IPv4 or IPv6 address, with"
                          " or without the prefix of its network, as in --address 127.0.1.1 or"
                          " --address 10.77.0.1/24");
  }
  HostAddress& parsed = *found;
  if (percent != text.size()) {
    const std::string zone(text.substr(percent + 1, zone_end - percent - 1));
    parsed.interface_index = if_nametoindex(zone.c_str());
    if (parsed.interface_index == 0) {
      return tl::unexpected("there is no interface \"" + zone + "\" for the address " +
                            std::string(text) + "; `ip link` shows their names");
    }
  } else if (parsed.address.IsLinkLocal()) {
    return tl::unexpected("the link-local address " + std::string(text) +
                          " needs its interface, as in --address fe80::1%eth0");
  }
  return parsed;
}

OrMessage<NetAddress> ParseGatewayOption(std::string_view text) {
  const std::optional<NetAddress> gateway = NetAddress::Parse(text);
  if (gateway && IsHostAddress(*gateway)) return *gateway;
  return tl::unexpected("\"" + std::string(text) +
                        "\" is not the address of a gateway; give an IPv4 or IPv6 address, as in"
                        " --gateway 10.77.0.254");
}

OrMessage<NetPrefix> ParseSilentNetOption(std::string_view text) {
  const std::optional<NetPrefix> net = NetPrefix::Parse(text);
  if (net && text.find('/') != text.npos) return *net;
  return tl::unexpected("\"" + std::string(text) +
                        "\" is not a network; give its address and the number of its bits, as in"
                        " --silent-net 10.99.0.0/16");
}

void TakeFromInterface(const std::vector<InterfaceAddress>& machine, HostAddress& address) {
  const InterfaceAddress* carrier = Carrier(machine, address.address, address.interface_index);
  if (carrier == nullptr) return;
  address.link_mtu_bytes = carrier->mtu_bytes;
  address.interface_index = carrier->interface_index;
  if (char name[IF_NAMESIZE]; if_indextoname(carrier->interface_index, name) != nullptr) {
    address.interface_name = name;
  }
  if (address.prefix_bits == 0 && carrier->address == address.address) {
    address.prefix_bits = carrier->prefix_bits;
  }
}

namespace {

// Reads little more than kMaxScenarioBytes, so that the caller notices a longer file.
std::optional<std::string> ScenarioText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  char part[4096];
  while (text.size() <= fault::kMaxScenarioBytes && file.read(part, sizeof part).gcount() > 0) {
    text.append(part, static_cast<size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad()) return std::nullopt;
  return text;
}

}  // namespace

OrMessage<std::vector<fault::Rule>> ReadScenario(const std::string& path) {
  const std::optional<std::string> text = ScenarioText(path);
  if (text) return fault::ParseScenario(*text, path, FaultVocabulary());
  return tl::unexpected("cannot read the scenario " + path + ": " + std::strerror(errno));
}

OrMessage<std::vector<fault::Program>> ReadScenarioPrograms(const std::string& path) {
  const std::optional<std::string> text = ScenarioText(path);
  if (text) return fault::ParsePrograms(*text, path);
  return tl::unexpected("cannot read the scenario " + path + ": " + std::strerror(errno));
}

std::string ScenarioMark(const std::string& path) {
  const std::optional<std::string> text = ScenarioText(path);
  if (!text) return {};
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : *text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  char digits[17];
  snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

RandomSeed KernelSeed() {
  RandomSeed seed;
  // getrandom(2) returns all of up to 256 bytes, or fails when a signal interrupts the call.
  while (getrandom(seed.key.data(), sizeof seed.key, 0) != sizeof seed.key) {
  }
  return seed;
}

std::optional<RandomSeed> ParseSeed(std::string_view text) {
  const auto parse = [](std::string_view digits, int base, auto& number) {
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), number, base);
    return error == std::errc() && end == digits.data() + digits.size();
  };
  if (text.size() != kLongSeedDigits || !text.starts_with(kLongSeed)) {
    uint64_t seed = 0;
    return parse(text, 10, seed) ? std::optional(RandomSeed(seed)) : std::nullopt;
  }
  RandomSeed seed;
  for (size_t i = 0; i < seed.key.size(); i++) {
    const size_t at = text.size() - 8 * (i + 1);
    if (!parse(text.substr(at, 8), 16, seed.key[i])) return std::nullopt;
  }
  return seed;
}

std::string SeedText(const RandomSeed& seed) {
  const RandomSeed low(uint64_t{seed.key[1]} << 32 | seed.key[0]);
  if (seed.key == low.key) return std::to_string(uint64_t{seed.key[1]} << 32 | seed.key[0]);
  std::string text(kLongSeed);
  char digits[9];
  for (size_t i = seed.key.size(); i > 0; i--) {
    snprintf(digits, sizeof digits, "%08x", seed.key[i - 1]);
    text += digits;
  }
  return text;
}

OrMessage<void> CheckLids(const HostConfig& config) {
  for (const DeviceConfig& device : config.devices) {
    if (device.profile.port.link_layer != IBV_LINK_LAYER_INFINIBAND) continue;
    const auto ipv4 = std::ranges::find_if(
        device.addresses, [](const HostAddress& own) { return own.address.IsIpv4(); });
    const bool has_ipv4 = ipv4 != device.addresses.end();
    if (has_ipv4 && LidOf(ipv4->address) != 0) continue;
    return tl::unexpected(
        "device " + device.name + " has no LID: " +
        (has_ipv4 ? "the low 16 bits of its address " + ipv4->address.ToString() +
                        " are not in 1 to 0xbfff"
                  : "its link layer is InfiniBand, and it has no IPv4 address") +
        "; give the device an IPv4 address from A.B.0.1 to A.B.191.255, as in --address 10.77.0.1");
  }
  return {};
}

std::optional<std::string> CheckChoices(const HostOptions& options) {
  const std::string &shortcuts = options.payload_shortcuts, &wire = options.wire;
  if (!shortcuts.empty() && shortcuts != "on" && shortcuts != "off") {
    return "payload shortcuts are \"on\" or \"off\", not \"" + shortcuts + "\"";
  }
  if (!wire.empty() && wire != "shared" && wire != "udp" && wire != "udp-single") {
    return "the wire is \"shared\", \"udp\" or \"udp-single\", not \"" + wire + "\"";
  }
  return std::nullopt;
}

OrMessage<HostConfig> MakeHostConfig(const HostOptions& options,
                                     const std::vector<InterfaceAddress>& machine) {
  HostConfig config;
  config.name = options.name;
  config.seed = ParseSeed(options.seed).value_or(KernelSeed());
  if (!options.scenario_path.empty()) {
    auto rules = ReadScenario(options.scenario_path);
    if (!rules) return tl::unexpected(std::move(rules.error()));
    config.faults = std::move(*rules);
  }
  std::vector<std::string> devices = options.devices;
  if (devices.empty()) devices.emplace_back(kDefaultDevice);
  if (devices.size() > kMaxDevices) {
    return tl::unexpected("a host has at most " + std::to_string(kMaxDevices) + " devices, and " +
                          std::to_string(devices.size()) + " were requested; use a second host");
  }
  std::vector<std::string> own;
  std::vector<size_t> own_counts;
  for (const std::string& text : devices) {
    OrMessage<DeviceOption> device = ParseDeviceOption(text);
    if (!device) return tl::unexpected(device.error());
    for (const DeviceConfig& other : config.devices) {
      if (other.name != device->name) continue;
      return tl::unexpected("device " + other.name + " is given twice; name it once");
    }
    config.devices.push_back({device->name, std::move(device->profile), {}});
    own.insert(own.end(), device->addresses.begin(), device->addresses.end());
    own_counts.push_back(device->addresses.size());
  }
  if (options.silent_nets.size() > kMaxSilentNets) {
    return tl::unexpected("a host has at most " + std::to_string(kMaxSilentNets) +
                          " silent networks, and " + std::to_string(options.silent_nets.size()) +
                          " were requested; name one with fewer bits");
  }
  if (const auto wrong = CheckChoices(options)) return tl::unexpected(*wrong);
  config.payload_shortcuts = options.payload_shortcuts != "off";
  for (const std::string& text : options.silent_nets) {
    const OrMessage<NetPrefix> net = ParseSilentNetOption(text);
    if (!net) return tl::unexpected(net.error());
    config.silent_nets.push_back(*net);
  }
  const OrMessage<std::vector<HostAddress>> addresses = ChooseAddresses(options, own, machine);
  if (!addresses) return tl::unexpected(addresses.error());
  OrMessage<std::vector<NetAddress>> gateways = ChooseGateways(options, *addresses);
  if (!gateways) return tl::unexpected(gateways.error());
  config.gateways = std::move(*gateways);
  const auto assigned = AssignAddresses(*addresses, own_counts, config.devices);
  if (!assigned) return tl::unexpected(assigned.error());
  return config;
}

OrMessage<UdpNetwork> OpenNetwork(const Registry& registry, const HostOptions& options,
                                  HostConfig& config) {
  UdpNetwork network;
  std::optional<std::string> failure;
  for (DeviceConfig& device : config.devices) {
    std::erase_if(device.addresses, [&](const HostAddress& address) {
      if (failure || !address.on_wire) return false;
      Result<UdpPort> port = OpenPort(registry, address);
      if (port) {
        network.Add(std::move(*port));
        return false;
      }
      const int error = port.error().code;
      const bool no_ipv6 = !address.address.IsIpv4() && options.addresses.empty() &&
                           !HaveOwnAddresses(options.devices) &&
                           (error == EADDRNOTAVAIL || error == EAFNOSUPPORT);
      if (!no_ipv6) failure = BindFailure(registry, address.address, error);
      return no_ipv6;
    });
  }
  if (failure) return tl::unexpected(*failure);
  return network;
}

}  // namespace rdmaemu::runtime
