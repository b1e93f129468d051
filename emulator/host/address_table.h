// The devices and addresses of a host as connection management sees them: which device has each
// address, and the routes that the addresses make. HostDevices changes it.
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

// What a host knows of a device's name. A removed device keeps its addresses and profile, and
// returns with them.
struct HostDevice {
  DeviceConfig config;
  Device* device = nullptr;  // nullptr: removed
  cm::CmDevice cm;           // valid while there is a device

  // Its port is down, so that no route leads over its link. A removed device says nothing of its
  // interface, which is up.
  bool IsDown() const { return device != nullptr && device->port_state != IBV_PORT_ACTIVE; }
};

class AddressTable final : public cm::CmAddresses {
 public:
  struct Row {
    HostDevice* owner;  // not owned
    HostAddress own;
  };

  // Networks whose addresses no neighbour answers for. A silent network is a route by itself.
  void SetSilentNets(const std::vector<NetPrefix>& nets) { silent_nets_ = nets; }
  // Next hops of destinations outside all networks, in the order in which they are tried.
  void SetGateways(const std::vector<NetAddress>& gateways) { gateways_ = gateways; }

  // A device that the table does not have yet; not owned, and stays where it is.
  void AddDevice(HostDevice& device) { devices_.push_back(&device); }
  // All, those that are removed too, in the order in which they were added.
  const std::vector<HostDevice*>& all_devices() const { return devices_; }
  void Add(HostDevice& owner, const HostAddress& own);
  void Remove(const NetAddress& address);
  // nullptr: the address is not this host's. Valid until the table changes.
  Row* Find(const NetAddress& address);
  const Row* Find(const NetAddress& address) const;
  // The same; a link-local address is the one whose IPv4 address it holds.
  const Row* FindByLink(const NetAddress& local) const;
  size_t size() const { return rows_.size(); }
  // The device of an own address, as FindByLink finds it; nullptr: there is none.
  const Device* DeviceAt(const NetAddress& local) const;

  // A link-local address is its device's by the IPv4 address in it.
  const cm::CmDevice* DeviceOf(const NetAddress& local) const override;
  std::vector<const cm::CmDevice*> Devices() const override;
  uint8_t GidIndexOf(const NetAddress& local) const override;
  uint16_t FirstPkeyOf(const cm::CmDevice& device) const override;
  std::optional<uint16_t> FindPkey(const NetAddress& local, uint16_t pkey) const override;
  bool LivesOnLoopback(bool ipv4) const override;
  bool IsOwnAddress(const NetAddress& address) const override { return Find(address) != nullptr; }
  // Looks the destination up in the host's routes, which are, in this order: its own addresses, the
  // silent networks, the networks of its addresses on the wire (longest prefix first, then the
  // oldest address), and the gateways. Ports that are down have no routes. A multicast group leaves
  // by a gateway's network, else by the oldest address.
  //
  // `from`: an own address to which the id is bound; only routes of its device count. As the kernel
  // does, an IPv4 destination without such a route counts as a silent neighbour on the device's
  // link (ip_route_output_key with an interface).
  cm::Reach FindRoute(const NetAddress& destination,
                      const std::optional<NetAddress>& from = {}) const override;
  // The own address that is the GID or, else, the oldest one in the GID's subnet, which are its
  // first 64 bits (cma_resolve_ib_dev).
  std::optional<NetAddress> SourceInSubnet(const NetAddress& gid) const override;

 private:
  bool IsSilent(const NetAddress& destination) const;
  // The own address on whose network the destination is; of `by` only where it is given.
  const Row* OnLink(const NetAddress& destination, const HostDevice* by) const;
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
