// `rdmaemu device`, `port`, `address` and `pkey`: list and change the devices of a running host.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <utility>

#include "emulator/runtime/host_client.h"
#include "emulator/runtime/host_setup.h"
#include "tools/cli/commands.h"
#include "tools/cli/device_text.h"
#include "tools/cli/running_host.h"

namespace rdmaemu::cli {
namespace {

using Json = nlohmann::ordered_json;
using runtime::OrMessage;

std::string NamesOf(const Json& devices) {
  std::string names;
  for (const Json& device : devices) {
    if (!device.value("present", true)) continue;
    names += (names.empty() ? "" : ", ") + device.value("name", "?");
  }
  return names.empty() ? "none" : names;
}

OrMessage<Json> DevicesOf(runtime::HostClient& client, const std::string& host) {
  const Result<std::string> status = client.Status();
  const Json json = status ? Json::parse(*status, nullptr, false) : Json();
  if (!json.is_object()) return tl::unexpected(HungMessage(host, client.host_pid()));
  return json.value("devices", Json::array());
}

// Explains an errno of the host for this request, and what the user can do.
std::string Reason(int error, const std::string& host, const std::string& device,
                   const std::string& address, const Json& devices) {
  switch (error) {
    case ENODEV:
      return "host " + host + " has no device " + device + "; it has: " + NamesOf(devices);
    case EEXIST:
      return address.empty()
                 ? "device " + device + " exists already; remove it first, or choose another name"
                 : "host " + host + " has the address " + address +
                       " already; to move it to another device, use: rdmaemu address move";
    case EALREADY:
      return "device " + device + " has the address " + address + " already";
    case EADDRNOTAVAIL:
      return "the address " + address +
             " exists neither on this host nor on an interface of this machine; see rdmaemu device "
             "list and `ip address`";
    case EADDRINUSE:
      return "UDP port 4791 of " + address +
             " is in use; stop the host that uses it, or choose another address";
    case EINVAL:
      return "device " + device + " is new on host " + host + "; name its profile, as in " +
             device + "=rxe; profiles: " + BuiltInProfileNames() +
             ", or a file, as in ./my-nic.toml";
    case ENOSPC:
      return "host " + host + " has the maximum number of devices or addresses; remove one first";
    case ENOSYS:
      return "host " + host + " runs an older version of rdmaemu; stop it with: rdmaemu stop " +
             host;
    default:
      return "host " + host + " could not make the change: " + std::string(std::strerror(error));
  }
}

struct Step {
  DeviceChange change;
  std::string address;  // "" where the change has none
};

// An added device gets its addresses one by one. If one fails, the device is removed again.
std::vector<Step> StepsOf(const DeviceRequest& request) {
  std::vector<Step> steps;
  if (request.change == DeviceChange::kAddDevice || request.addresses.empty()) {
    steps.push_back({*request.change, ""});
  }
  for (const std::string& address : request.addresses) {
    const bool added = request.change == DeviceChange::kAddDevice;
    steps.push_back({added ? DeviceChange::kAddAddress : *request.change, address});
  }
  return steps;
}

// Parses a decimal number, or a hexadecimal one after 0x.
std::optional<uint16_t> ParsePkey(std::string_view text) {
  const bool is_hexadecimal = text.starts_with("0x");
  if (is_hexadecimal) text.remove_prefix(2);
  uint16_t pkey = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), pkey, is_hexadecimal ? 16 : 10);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return pkey;
}

struct Message {
  ChangeDeviceIn in{};
  std::string profile_toml;
};

OrMessage<Message> MessageOf(const DeviceRequest& request, const Step& step) {
  Message message;
  ChangeDeviceIn& in = message.in;
  in.change = static_cast<uint32_t>(step.change);
  const size_t equals = request.device.find('=');
  const std::string name = request.device.substr(0, equals);
  if (!name.empty()) {
    auto device = runtime::ParseDeviceOption(request.device);
    if (!device) return tl::unexpected(device.error());
    name.copy(in.device, sizeof in.device - 1);
    if (step.change == DeviceChange::kAddDevice && equals != std::string::npos) {
      message.profile_toml = std::move(device->profile_toml);
      if (message.profile_toml.empty()) {
        device->profile.name.copy(in.profile, sizeof in.profile - 1);
      }
    }
  }
  if (step.change == DeviceChange::kSetPkey) {
    const std::optional<uint16_t> pkey = ParsePkey(request.pkey);
    if (!pkey) {
      return tl::unexpected("\"" + request.pkey +
                            "\" is not a P_Key: give a number of 16 bits, as in 0x8001");
    }
    in.pkey_index = request.pkey_index;
    in.pkey = *pkey;
  }
  if (step.address.empty()) return message;
  OrMessage<HostAddress> address = runtime::ParseAddressOption(step.address);
  if (!address) return tl::unexpected(address.error());
  runtime::TakeFromInterface(runtime::InterfaceAddresses(), *address);
  std::ranges::copy(address->address.bytes, in.address);
  in.link_mtu_bytes = std::min(address->link_mtu_bytes, uint32_t{65536});
  in.interface_index = address->interface_index;
  address->interface_name.copy(in.interface_name, sizeof in.interface_name - 1);
  in.prefix_bits = address->prefix_bits;
  in.on_wire = 1;
  return message;
}

OrMessage<void> Apply(runtime::HostClient& client, const DeviceRequest& request) {
  for (const Step& step : StepsOf(request)) {
    const OrMessage<Message> message = MessageOf(request, step);
    if (!message) return tl::unexpected(message.error());
    const Status done = client.ChangeDevice(message->in, message->profile_toml);
    if (done) continue;
    const int error = done.error().code;
    if (error == ETIMEDOUT) return tl::unexpected(HungMessage(request.host, client.host_pid()));
    const OrMessage<Json> devices = DevicesOf(client, request.host);
    if (step.change == DeviceChange::kAddAddress && request.change == DeviceChange::kAddDevice) {
      if (const auto removal = MessageOf(request, {DeviceChange::kRemoveDevice, ""})) {
        (void)client.ChangeDevice(removal->in, "");
      }
    }
    if (step.change == DeviceChange::kSetPkey && error == EINVAL) {
      return tl::unexpected("the P_Key table of device " + request.device + " has no entry " +
                            std::to_string(request.pkey_index) +
                            "; its length is its profile's pkey_tbl_len");
    }
    return tl::unexpected(Reason(error, request.host, message->in.device, step.address,
                                 devices ? *devices : Json::array()));
  }
  return {};
}

}  // namespace

int ChangeDevices(const DeviceRequest& given) {
  DeviceRequest request = given;
  // The addresses after '@' act as --address.
  if (const size_t at = given.device.find('@');
      at != std::string::npos && given.change == DeviceChange::kAddDevice) {
    auto device = runtime::ParseDeviceOption(given.device);
    if (!device) return Fail(kFailed, device.error());
    request.device.resize(at);
    request.addresses.insert(request.addresses.begin(), device->addresses.begin(),
                             device->addresses.end());
  } else if (at != std::string::npos) {
    return Fail(kFailed, "\"" + given.device +
                             "\" is not a device's name: only `device add` takes addresses after"
                             " '@'; give the name alone");
  }
  const auto registry = runtime::Registry::Open();
  if (!registry) return Fail(kFailed, registry.error());
  auto client = runtime::HostClient::Connect(registry->SocketPath(request.host));
  if (!client) return Fail(kFailed, NotRunningMessage(*registry, request.host));
  if (request.change) {
    const OrMessage<void> done = Apply(*client, request);
    if (!done) return Fail(kFailed, done.error());
    if (!request.json) return 0;
  }
  const OrMessage<Json> devices = DevicesOf(*client, request.host);
  if (!devices) return Fail(kFailed, devices.error());
  if (request.json) {
    printf("%s\n", devices->dump(2, ' ', false, Json::error_handler_t::replace).c_str());
    return 0;
  }
  for (const Json& device : *devices) printf("%s\n", DeviceText(device).c_str());
  return 0;
}

}  // namespace rdmaemu::cli
