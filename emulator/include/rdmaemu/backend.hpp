// The RDMA device on which a test runs, and the devices and addresses that the test finds there.
// The environment variable RDMAEMU_BACKEND selects the device. Header only. docs/embedding.md has
// examples.
#pragma once

#include <arpa/inet.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <sys/socket.h>
#include <rdmaemu/framework.hpp>
#include <rdmaemu/rdmaemu.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace rdmaemu::testing {

enum class Backend {
  kEmbedded,  // "embedded", the default: a host inside the test's process
  kHost,      // "host": the host process of `rdmaemu run`
  kSystem,    // "system": any device that libibverbs has on this machine
};

// Throws std::invalid_argument when RDMAEMU_BACKEND has any other value.
inline Backend CurrentBackend() {
  const char* const value = std::getenv("RDMAEMU_BACKEND");
  const std::string name = value == nullptr || *value == '\0' ? "embedded" : value;
  if (name == "embedded") return Backend::kEmbedded;
  if (name == "host") return Backend::kHost;
  if (name == "system") return Backend::kSystem;
  throw std::invalid_argument("RDMAEMU_BACKEND is \"" + name +
                              "\"; set it to embedded, host or system");
}

// Returns the reason to skip a test that has the need on the backend. "": the backend has the need.
inline std::string WhyNotOn(Backend backend, Need need) {
  if (backend == Backend::kEmbedded) return "";
  const bool is_host = backend == Backend::kHost;
  const std::string here = is_host ? "RDMAEMU_BACKEND=host has one host, of `rdmaemu run`"
                                   : "RDMAEMU_BACKEND=system is the machine's own device";
  switch (need) {
    case Need::kRules:
      if (is_host || std::getenv("RDMAEMU_LAYER_FAULTS_SOCKET") != nullptr) return "";
      return "the test needs fault rules; " + here +
             ", which takes rules with `rdmaemu run --backend system --host NAME`";
    case Need::kTime:
      return is_host ? "" : "the test needs the emulator's time; " + here;
    case Need::kHosts:
      return "the test needs several hosts in one process; " + here;
    case Need::kTimeline:
      return "the test needs the timeline of an embedded host; " + here;
  }
  return "";
}

// Ends the test as skipped where the backend lacks the need.
inline void SkipWithout(Need need) {
  const std::string why = WhyNotOn(CurrentBackend(), need);
  if (!why.empty()) Skip(why);
}

// An RDMA device and the IP addresses by which rdma_bind_addr reaches it, IPv4 first.
struct TestDevice {
  std::string name;
  std::vector<std::string> addresses;
};

namespace detail {

inline std::vector<std::string> SplitAtCommas(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

inline bool IsIpv6(const std::string& address) { return address.find(':') != std::string::npos; }

inline std::string AddressText(int family, const void* bytes) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(family, bytes, text, sizeof text);
  return text;
}

// RoCE devices show their addresses as GIDs.
inline void AddAddressesOfGids(ibv_device* device, std::vector<std::string>& addresses) {
  const std::unique_ptr<ibv_context, int (*)(ibv_context*)> context(ibv_open_device(device),
                                                                    ibv_close_device);
  ibv_device_attr attributes = {};
  if (context == nullptr || ibv_query_device(context.get(), &attributes) != 0) return;
  for (uint8_t port = 1; port <= attributes.phys_port_cnt; port++) {
    ibv_port_attr port_attributes = {};
    if (ibv_query_port(context.get(), port, &port_attributes) != 0) continue;
    for (int i = 0; i < port_attributes.gid_tbl_len; i++) {
      ibv_gid gid = {};
      if (ibv_query_gid(context.get(), port, i, &gid) != 0) continue;
      in6_addr ip;
      std::memcpy(&ip, gid.raw, sizeof ip);
      if (IN6_IS_ADDR_UNSPECIFIED(&ip) || IN6_IS_ADDR_LINKLOCAL(&ip)) continue;
      addresses.push_back(IN6_IS_ADDR_V4MAPPED(&ip) ? AddressText(AF_INET, gid.raw + 12)
                                                    : AddressText(AF_INET6, gid.raw));
    }
  }
}

// InfiniBand and iWARP devices use the addresses of network interfaces.
inline void AddAddressesOfInterfaces(std::vector<std::string>& addresses) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    if (each->ifa_addr->sa_family == AF_INET) {
      addresses.push_back(
          AddressText(AF_INET, &reinterpret_cast<sockaddr_in*>(each->ifa_addr)->sin_addr));
    } else if (each->ifa_addr->sa_family == AF_INET6) {
      const in6_addr& ip = reinterpret_cast<sockaddr_in6*>(each->ifa_addr)->sin6_addr;
      if (!IN6_IS_ADDR_LINKLOCAL(&ip)) addresses.push_back(AddressText(AF_INET6, &ip));
    }
  }
  freeifaddrs(all);
}

// Returns the device to which rdma_bind_addr binds the address. "": none.
inline std::string DeviceOfAddress(const std::string& address) {
  sockaddr_storage storage = {};
  if (IsIpv6(address)) {
    auto& at = reinterpret_cast<sockaddr_in6&>(storage);
    at.sin6_family = AF_INET6;
    if (inet_pton(AF_INET6, address.c_str(), &at.sin6_addr) != 1) return "";
  } else {
    auto& at = reinterpret_cast<sockaddr_in&>(storage);
    at.sin_family = AF_INET;
    if (inet_pton(AF_INET, address.c_str(), &at.sin_addr) != 1) return "";
  }
  const std::unique_ptr<rdma_event_channel, void (*)(rdma_event_channel*)> channel(
      rdma_create_event_channel(), rdma_destroy_event_channel);
  rdma_cm_id* id = nullptr;
  if (channel == nullptr || rdma_create_id(channel.get(), &id, nullptr, RDMA_PS_TCP) != 0) {
    return "";
  }
  std::string device;
  if (rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&storage)) == 0 && id->verbs != nullptr) {
    device = ibv_get_device_name(id->verbs->device);
  }
  rdma_destroy_id(id);
  return device;
}

// Returns all devices, those with an address first. Throws std::runtime_error when no device has an
// address.
inline std::vector<TestDevice> FindDevices() {
  std::vector<TestDevice> devices;
  std::vector<std::string> addresses;
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  for (int i = 0; list != nullptr && i < count; i++) {
    devices.push_back({ibv_get_device_name(list[i]), {}});
    AddAddressesOfGids(list[i], addresses);
  }
  if (list != nullptr) ibv_free_device_list(list);
  if (devices.empty()) {
    throw std::runtime_error("there is no RDMA device for RDMAEMU_BACKEND=" +
                             std::string(std::getenv("RDMAEMU_BACKEND")) +
                             "; ibv_devices lists those that a program sees");
  }
  const char* const given = std::getenv("RDMAEMU_TEST_ADDRESS");
  if (given != nullptr && *given != '\0') {
    addresses = SplitAtCommas(given);
  } else {
    AddAddressesOfInterfaces(addresses);
    std::stable_partition(addresses.begin(), addresses.end(),
                          [](const std::string& each) { return !IsIpv6(each); });
  }
  for (auto each = addresses.begin(); each != addresses.end(); ++each) {
    if (std::find(addresses.begin(), each, *each) != each) continue;
    const std::string name = DeviceOfAddress(*each);
    for (TestDevice& device : devices) {
      if (device.name == name) device.addresses.push_back(*each);
    }
    if (given != nullptr && name.empty()) {
      throw std::runtime_error("RDMAEMU_TEST_ADDRESS names " + *each +
                               ", which is no address of an RDMA device here");
    }
  }
  std::stable_partition(devices.begin(), devices.end(),
                        [](const TestDevice& each) { return !each.addresses.empty(); });
  if (devices.front().addresses.empty()) {
    throw std::runtime_error(
        "no RDMA device here has an IP address that rdma_bind_addr takes; give one to its "
        "network interface, or name one in RDMAEMU_TEST_ADDRESS");
  }
  return devices;
}

// Returns the devices that an embedded host with these options has.
inline std::vector<TestDevice> DevicesOf(const EmbeddingOptions& options) {
  std::vector<DeviceOptions> given = options.devices;
  if (given.empty()) given.emplace_back();
  std::vector<TestDevice> devices;
  for (const DeviceOptions& each : given) {
    TestDevice device{each.name, SplitAtCommas(each.addresses)};
    for (std::string& address : device.addresses) address = address.substr(0, address.find('/'));
    std::stable_partition(device.addresses.begin(), device.addresses.end(),
                          [](const std::string& address) { return !IsIpv6(address); });
    devices.push_back(device);
  }
  return devices;
}

// Throws when the process does not run on the backend that RDMAEMU_BACKEND names.
inline void CheckBackend(Backend backend) {
  const bool is_on_host = std::getenv("RDMAEMU_HOST") != nullptr;
  if (backend == Backend::kHost) {
    if (!is_on_host) {
      throw std::runtime_error(
          "RDMAEMU_BACKEND is \"host\", and this process is on no host; start it as in: "
          "RDMAEMU_BACKEND=host rdmaemu run -- ./my_test");
    }
    Checked(rdmaemu_rules(nullptr, 0));
  }
  // Without a host, rdmaemu's libibverbs.so.1 would start a host, which is not the machine's
  // device. The layer of `rdmaemu run` (RDMAEMU_LAYER_VERBS) has the same names, but runs on the
  // machine's libraries.
  if (backend == Backend::kSystem && !is_on_host && std::getenv("RDMAEMU_LAYER_VERBS") == nullptr &&
      dlsym(RTLD_DEFAULT, "rdmaemu_client_embed") != nullptr) {
    throw std::runtime_error(
        "RDMAEMU_BACKEND is \"system\", and this process uses rdmaemu's libibverbs.so.1, not the "
        "machine's; start it as in: RDMAEMU_BACKEND=system rdmaemu run --backend system -- "
        "./my_test");
  }
}

}  // namespace detail
}  // namespace rdmaemu::testing
