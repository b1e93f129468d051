#include "emulator/host/device_calls.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "emulator/verbs/device.h"

namespace rdmaemu {
namespace {

// Limits of an interface's MTU: IPv4's minimum (RFC 791), and more than Linux allows for a link.
constexpr uint32_t kLeastLinkMtuBytes = 68, kMostLinkMtuBytes = 65536;
constexpr uint32_t kAddressBits = 128;

std::string_view TextOf(std::span<const char> text) {
  return {text.data(), strnlen(text.data(), text.size())};
}

// Returns the address of one host, or nothing when no single host can have it.
std::optional<HostAddress> AddressOf(const ChangeDeviceIn& in) {
  HostAddress own;
  std::copy(std::begin(in.address), std::end(in.address), own.address.bytes.begin());
  if (!IsHostAddress(own.address)) return std::nullopt;
  if (in.link_mtu_bytes < kLeastLinkMtuBytes || in.link_mtu_bytes > kMostLinkMtuBytes) {
    return std::nullopt;
  }
  own.link_mtu_bytes = in.link_mtu_bytes;
  own.interface_index = in.interface_index;
  own.interface_name = TextOf(in.interface_name);
  if (in.prefix_bits > kAddressBits) return std::nullopt;
  own.prefix_bits = static_cast<uint8_t>(in.prefix_bits);
  own.on_wire = in.on_wire != 0;
  return own;
}

Status Add(HostDevices& devices, const std::string& name, std::string_view profile_name,
           std::string_view profile_toml) {
  if (!profile_toml.empty()) {
    // The sender has already reported the profile's errors to the user.
    const auto parsed = ParseProfile(profile_toml, "profile");
    return parsed && profile_name.empty() ? devices.Add(name, &*parsed) : Fail(EINVAL);
  }
  if (profile_name.empty()) return devices.Add(name, nullptr);
  const Profile* profile = BuiltInProfile(profile_name);
  return profile == nullptr ? Fail(EINVAL) : devices.Add(name, profile);
}

Status ChangeAddress(HostDevices& devices, Time now, const ChangeDeviceIn& in,
                     const std::string& name) {
  const std::optional<HostAddress> address = AddressOf(in);
  if (!address) return Fail(EINVAL);
  switch (DeviceChange{in.change}) {
    case DeviceChange::kAddAddress:
      return devices.AddAddress(name, *address);
    case DeviceChange::kRemoveAddress:
      return devices.RemoveAddress(address->address);
    default:
      return devices.MoveAddress(now, address->address, name);
  }
}

Status Change(HostDevices& devices, Time now, const ChangeDeviceIn& in,
              std::string_view profile_toml) {
  const std::string name(TextOf(in.device));
  const auto change = DeviceChange{in.change};
  const bool takes_profile = change == DeviceChange::kAddDevice;
  if (profile_toml.size() > (takes_profile ? kMaxProfileBytes : 0)) return Fail(EINVAL);
  if (change != DeviceChange::kRemoveAddress && !IsDeviceName(name)) return Fail(EINVAL);
  switch (change) {
    case DeviceChange::kRemoveDevice:
      return devices.Remove(now, name);
    case DeviceChange::kAddDevice:
      return Add(devices, name, TextOf(in.profile), profile_toml);
    case DeviceChange::kPortDown:
      return devices.SetPort(now, name, false);
    case DeviceChange::kPortUp:
      return devices.SetPort(now, name, true);
    case DeviceChange::kSetPkey:
      if (in.pkey > UINT16_MAX) return Fail(EINVAL);
      return devices.SetPkey(name, in.pkey_index, static_cast<uint16_t>(in.pkey));
    case DeviceChange::kAddAddress:
    case DeviceChange::kRemoveAddress:
    case DeviceChange::kMoveAddress:
      return ChangeAddress(devices, now, in, name);
  }
  return Fail(EINVAL);
}

}  // namespace

Reply ChangeDevice(HostDevices& devices, Time now, std::span<const std::byte> body) {
  Reply reply;
  ChangeDeviceIn in;
  if (body.size() < sizeof in) {
    reply.error = EINVAL;
    return reply;
  }
  std::memcpy(&in, body.data(), sizeof in);
  const std::string_view profile_toml(reinterpret_cast<const char*>(body.data()) + sizeof in,
                                      body.size() - sizeof in);
  const Status done = Change(devices, now, in, profile_toml);
  if (!done) reply.error = done.error().code;
  return reply;
}

}  // namespace rdmaemu
