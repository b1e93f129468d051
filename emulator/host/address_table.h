// The devices and addresses of a host for connection management: the device of each address, and
// the routes that follow from the addresses. Only HostDevices changes the table.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "emulator/base/net_address.h"
#include "emulator/base/net_prefix.h"
#include "emulator/cm/environment.h"
#include "emulator/verbs/device.h"

namespace rdmaemu {

// The data that a host stores under a device's name. A removed device keeps its addresses and
// profile, so that it can return.
struct HostDevice {
  DeviceConfig config;
  Device* device = nullptr;  // nullptr: removed
  cm::CmDevice cm;           // valid while there is a device

  // Returns true when the device's port is down, so that no route uses its link. A removed device
  // does not affect its interface, which stays up.
  bool IsDown() const { return device != nullptr && device->port_state != IBV_PORT_ACTIVE; }
};

class AddressTable final : public cm::CmAddresses {
 public:
  struct Row {
    HostDevice* owner;  // not owned
    HostAddress own;
  };

  // Sets the networks in which no neighbour answers. A silent network is itself a route.
  void SetSilentNets(const std::vector<NetPrefix>& nets) { silent_nets_ = nets; }
  // Sets the next hops of destinations outside all networks, in the order in which they are tried.
  void SetGateways(const std::vector<NetAddress>& gateways) { gateways_ = gateways; }

  // Adds a device that is not in the table yet. The device is not owned and must keep its place in
  // memory.
  void AddDevice(HostDevice& device) { devices_.push_back(&device); }
  // Returns all devices, including removed ones, in the order in which they were added.
  const std::vector<HostDevice*>& all_devices() const { return devices_; }
  void Add(HostDevice& owner, const HostAddress& own);
  void Remove(const NetAddress& address);
  // Returns nullptr when the address is not this host's. Valid until the table changes.
  Row* Find(const NetAddress& address);
  const Row* Find(const NetAddress& address) const;
  // Acts as Find, but looks for the IPv4 address that a link-local address contains.
  const Row* FindByLink(const NetAddress& local) const;
  size_t size() const { return rows_.size(); }
  // Returns the device of an own address as FindByLink finds it, nullptr when there is none.
  Device* DeviceAt(const NetAddress& local) const;

  // Returns the device of an address. A link-local address belongs to the device of the IPv4
  // address that it contains.
  const cm::CmDevice* DeviceOf(const NetAddress& local) const override;
  std::vector<const cm::CmDevice*> Devices() const override;
  uint8_t GidIndexOf(const NetAddress& local) const override;
  std::optional<NetAddress> FirstGidOf(const cm::CmDevice& device) const override;
  bool IsPortUp(uint32_t device_index) const override;
  uint16_t FirstPkeyOf(const cm::CmDevice& device) const override;
  std::optional<uint16_t> FindPkey(const NetAddress& local, uint16_t pkey) const override;
  bool LivesOnLoopback(bool ipv4) const override;
  bool IsOwnAddress(const NetAddress& address) const override { return Find(address) != nullptr; }
  // Looks up the route to a destination. The order of the search is:
  // - the host's own addresses,
  // - the silent networks,
  // - the networks of its addresses on the wire (longest prefix first, then the oldest address),
  // - the gateways.
  //
  // A port that is down has no routes. A multicast group uses a gateway's network, else the oldest
  // address. `from` is an own address to which the id is bound. With `from`, only routes of its
  // device count. An IPv4 destination without such a route then counts as a silent neighbour on the
  // device's link, as on the kernel (ip_route_output_key with an interface). With `scope_id`, only
  // addresses and routes on that interface count, and no gateway leads to the destination.
  cm::Reach FindRoute(const NetAddress& destination, const std::optional<NetAddress>& from = {},
                      uint32_t scope_id = 0) const override;
  bool IsOnLink(const NetAddress& own, uint32_t scope_id) const override;
  // Returns the own address that equals the GID, else the oldest own address in the GID's subnet.
  // The subnet is the first 64 bits (cma_resolve_ib_dev).
  std::optional<NetAddress> SourceInSubnet(const NetAddress& gid) const override;

 private:
  // Returns nullptr for a device that was removed.
  const Device* PresentDevice(uint32_t device_index) const;
  bool IsSilent(const NetAddress& destination) const;
  // Returns the own address whose network contains the destination. `by` limits the search to one
  // device, and `scope_id` to one interface.
  const Row* OnLink(const NetAddress& destination, const HostDevice* by,
                    uint32_t scope_id = 0) const;
  cm::Reach ByGateway(const NetAddress& destination, const HostDevice* by) const;
  cm::Reach FindRouteFrom(const Row& from, const NetAddress& destination) const;
  const Row* FirstForGroup(const NetAddress& group) const;

  std::vector<HostDevice*> devices_;
  std::map<NetAddress, Row> rows_;
  std::vector<NetAddress> order_;  // oldest first
  std::vector<NetPrefix> silent_nets_;
  std::vector<NetAddress> gateways_;
};

}  // namespace rdmaemu
