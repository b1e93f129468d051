#include "emulator/verbs/device.h"

#include <algorithm>
#include <cstring>

#include "emulator/verbs/mgid.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu {
namespace {

// Bytes of headers that rxe subtracts from an interface's MTU (RXE_MAX_HDR_LENGTH).
constexpr uint32_t kMaxHeaderBytes = 80;
// Prefix lengths of addresses without a prefix, counted as in NetPrefix.
constexpr uint8_t kIpv4LoopbackBits = 96 + 8, kIpv4Bits = 96 + 24;
constexpr uint8_t kIpv6LoopbackBits = 128, kIpv6Bits = 64;
constexpr uint8_t kIpv4Offset = 96;  // NetPrefix counts an IPv4 network's bits from here
constexpr uint8_t kPhysicalLinkUp = 5, kPhysicalDisabled = 3;  // IB_PORT_PHYS_STATE_*

// Returns the EUI-64 of the MAC 02:00:a:b:c:d, from which the link-local GID is made, too. Without
// an IPv4 address, returns the lower half of the first address.
uint64_t NodeGuid(const std::vector<HostAddress>& addresses) {
  NetAddress link_local{};
  for (const HostAddress& own : addresses) {
    if (own.address.IsIpv4()) {
      link_local = LinkLocalOf(own.address);
      break;
    }
  }
  if (link_local.IsZero() && !addresses.empty()) link_local = addresses.front().address;
  uint64_t guid;
  std::copy_n(link_local.bytes.begin() + 8, 8, reinterpret_cast<uint8_t*>(&guid));
  return guid;
}

// Returns the path to the host with this LID. The host's IPv4 address consists of the upper 16 bits
// of the device's own address and of the LID.
Result<Path> PathToLid(const Device& device, uint16_t dlid) {
  constexpr uint32_t kSubnet = 0xffff0000;
  const std::optional<NetAddress> own =
      device.Lid() == 0 ? std::nullopt : AddressOfLinkLocal(device.gids[0]);
  if (!own || dlid < kLeastLid || dlid > kMostLid) return Fail(EINVAL);
  Path path;
  path.source = *own;
  path.destination = NetAddress::Ipv4((own->ToIpv4() & kSubnet) | dlid);
  path.by_lid = true;
  return path;
}

}  // namespace

bool IsDeviceName(std::string_view name) {
  const bool characters_fit = std::ranges::all_of(name, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_';
  });
  return !name.empty() && name.size() < IBV_SYSFS_NAME_MAX && characters_fit;
}

bool IsHostAddress(const NetAddress& address) {
  return !address.IsZero() && !address.IsMulticast() && address != NetAddress::Ipv4(0) &&
         address != NetAddress::Ipv4(0xffffffff);
}

std::optional<HostAddress> ParseHostAddress(std::string_view text) {
  const std::optional<NetPrefix> parsed = NetPrefix::Parse(text);
  if (!parsed || !IsHostAddress(parsed->address)) return std::nullopt;
  HostAddress own{.address = parsed->address};
  if (text.find('/') == text.npos) return own;
  if (parsed->bits == (own.address.IsIpv4() ? kIpv4Offset : 0)) return std::nullopt;
  own.prefix_bits = parsed->bits;
  return own;
}

NetPrefix NetworkOf(const HostAddress& own) {
  if (own.prefix_bits != 0) return {own.address, own.prefix_bits};
  const bool is_loopback = own.address.IsLoopback();
  if (own.address.IsIpv4()) return {own.address, is_loopback ? kIpv4LoopbackBits : kIpv4Bits};
  return {own.address, is_loopback ? kIpv6LoopbackBits : kIpv6Bits};
}

ibv_mtu ActiveMtu(uint32_t link_mtu_bytes, ibv_mtu max_mtu) {
  const uint32_t room = link_mtu_bytes > kMaxHeaderBytes ? link_mtu_bytes - kMaxHeaderBytes : 0;
  ibv_mtu mtu = IBV_MTU_256;
  for (const ibv_mtu next : {IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096}) {
    if (MtuBytes(next) <= room && next <= max_mtu) mtu = next;
  }
  return mtu;
}

ibv_gid MacGidOf(uint64_t node_guid_be) {
  // The EUI-64 has ff:fe in the middle and the universal bit inverted.
  uint8_t eui[sizeof node_guid_be];
  std::memcpy(eui, &node_guid_be, sizeof eui);
  return {.raw = {static_cast<uint8_t>(eui[0] ^ 2), eui[1], eui[2], eui[5], eui[6], eui[7]}};
}

uint16_t LidOf(const NetAddress& address) {
  if (!address.IsIpv4()) return 0;
  const auto lid = static_cast<uint16_t>(address.ToIpv4());
  return lid >= kLeastLid && lid <= kMostLid ? lid : 0;
}

uint16_t Device::Lid() const {
  if (!has_lids() || gids.empty()) return 0;
  return LidOf(AddressOfLinkLocal(gids[0]).value_or(NetAddress{}));
}

std::optional<uint16_t> Device::FindPkey(uint16_t pkey) const {
  constexpr uint16_t kPartition = 0x7fff, kFullMember = 0x8000;
  const auto is_of = [&](uint16_t entry) { return ((entry ^ pkey) & kPartition) == 0; };
  if (pkeys.empty()) return is_of(kDefaultPkey) ? std::optional<uint16_t>(0) : std::nullopt;
  auto found = std::ranges::find_if(
      pkeys, [&](uint16_t entry) { return is_of(entry) && (entry & kFullMember) != 0; });
  if (found == pkeys.end()) found = std::ranges::find_if(pkeys, is_of);
  if (found == pkeys.end()) return std::nullopt;
  return static_cast<uint16_t>(found - pkeys.begin());
}

Device& Verbs::AddDevice(DeviceConfig config) {
  const uint32_t index = environment_.ids.At(next_device_index_++);
  Device& device = devices_[index];
  device.name = std::move(config.name);
  device.index = index;
  device.profile = std::move(config.profile);
  device.addresses = std::move(config.addresses);
  device.node_guid = config.node_guid != 0 ? config.node_guid : NodeGuid(device.addresses);
  // A device without an address gets a random GUID. 0 would mean no device at all.
  while (device.node_guid == 0) device.node_guid = environment_.random.Next64();

  device.pkeys = device.profile.pkeys;
  SetActiveMtu(device);
  // Entry 0 stays empty on a device without an IPv4 address, so that the other indices do not
  // change.
  device.gids.push_back({});
  for (const HostAddress& own : device.addresses) device.gids.push_back(own.address);
  SetLinkLocalGid(device);
  ListAddresses();
  return device;
}

void Verbs::SetActiveMtu(Device& device) {
  uint32_t link_mtu_bytes = UINT32_MAX;
  for (const HostAddress& own : device.addresses) {
    link_mtu_bytes = std::min(link_mtu_bytes, own.link_mtu_bytes);
  }
  device.active_mtu = ActiveMtu(link_mtu_bytes, device.profile.port.max_mtu);
}

std::vector<Device*> Verbs::devices() {
  std::vector<Device*> all;
  for (auto& [index, device] : devices_) {
    if (device.present) all.push_back(&device);
  }
  return all;
}

Device* Verbs::DeviceByIndex(uint32_t index) {
  const auto found = devices_.find(index);
  return found == devices_.end() || !found->second.present ? nullptr : &found->second;
}

bool Verbs::IsLocal(const NetAddress& address) { return by_address_.contains(address); }

ibv_device_attr_ex Verbs::QueryDevice(const Device& device) const {
  ibv_device_attr_ex attr = device.profile.device;
  attr.orig_attr.node_guid = device.node_guid;
  attr.orig_attr.sys_image_guid = device.node_guid;
  return attr;
}

ibv_port_attr Verbs::QueryPort(const Device& device) const {
  ibv_port_attr attr = device.profile.port;
  attr.state = device.port_state;
  attr.bad_pkey_cntr = device.bad_pkeys;
  attr.active_mtu = device.active_mtu;
  // Each host has a subnet manager of its own, at its own LID.
  attr.lid = attr.sm_lid = device.Lid();
  // The kernel's ib_cm clears the flag (cm_remove_one). iw_cm does not.
  if (!device.present && device.profile.cm.manager == ConnectionManager::kIb) {
    attr.port_cap_flags &= ~static_cast<uint32_t>(IBV_PORT_CM_SUP);
  }
  attr.phys_state = device.port_state == IBV_PORT_ACTIVE ? kPhysicalLinkUp : kPhysicalDisabled;
  return attr;
}

Result<Path> Verbs::ResolvePath(const Device& device, const ibv_ah_attr& attr) const {
  if (attr.port_num != Device::kPort) return Fail(EINVAL);
  if (attr.is_global == 0) return PathToLid(device, attr.dlid);
  const NetAddress destination = NetAddress::FromGid(attr.grh.dgid);
  if (destination.IsZero()) return Fail(EINVAL);
  if (attr.grh.sgid_index >= device.profile.port.gid_tbl_len) return Fail(EINVAL);
  // An empty entry is ENODATA (measured).
  if (attr.grh.sgid_index >= device.gids.size()) return Fail(ENODATA);
  const NetAddress& source = device.gids[attr.grh.sgid_index];
  if (source.IsZero()) return Fail(ENODATA);

  Path path;
  path.source = AddressOfLinkLocal(source).value_or(source);
  path.destination = device.has_lids() ? WireGroupOf(destination) : destination;
  if (destination.IsLinkLocal()) {
    path.destination = AddressOfLinkLocal(destination).value_or(destination);
    path.by_link_local = path.destination != destination && source.IsLinkLocal();
  }
  path.source_gid_index = attr.grh.sgid_index;
  path.traffic_class = attr.grh.traffic_class;
  path.hop_limit = attr.grh.hop_limit != 0 ? attr.grh.hop_limit : Path{}.hop_limit;
  path.flow_label = attr.grh.flow_label & 0xfffff;
  return path;
}

}  // namespace rdmaemu
