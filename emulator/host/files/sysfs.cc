#include "emulator/host/files/sysfs.h"

#include <endian.h>

#include <array>
#include <cerrno>
#include <string_view>

#include "emulator/base/id_space.h"

namespace rdmaemu::files {
namespace {

// Numbers of character devices (IB_UVERBS_MAJOR and others of uverbs_main.c and user_mad.c).
constexpr uint32_t kInfinibandMajor = 231;
constexpr uint32_t kFirstUverbsMinor = 192;
constexpr uint32_t kFirstIssmMinor = 64;
constexpr uint32_t kMiscMajor = 10;
// The kernel assigns this number dynamically, so it differs from boot to boot.
constexpr uint32_t kRdmaCmMinor = 124;

// Versions that libraries compare (ib_user_verbs.h, ib_user_mad.h, rdma_user_cm.h).
constexpr const char* kUverbsClassAbi = "6";
constexpr const char* kUmadAbi = "5";
constexpr const char* kRdmaCmAbi = "4";

std::string Hex(uint64_t value, int digits) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text(static_cast<size_t>(digits), '0');
  for (auto at = text.rbegin(); at != text.rend(); ++at, value >>= 4) *at = kDigits[value & 15];
  return text;
}
std::string ShortHex(uint64_t value) {
  std::string text = Hex(value, 16);
  text.erase(0, std::min(text.find_first_not_of('0'), text.size() - 1));
  return "0x" + text;
}

// "0000:0000:..." in groups of 16 bits (the kernel's %pI6).
std::string Groups(std::span<const uint8_t> bytes) {
  std::string text;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    if (i > 0) text += ':';
    text += Hex(uint64_t{bytes[i]} << 8 | bytes[i + 1], 4);
  }
  return text;
}
std::string GuidText(uint64_t guid_be) {
  std::array<uint8_t, 8> bytes;
  std::memcpy(bytes.data(), &guid_be, bytes.size());
  return Groups(bytes);
}

const char* StateText(ibv_port_state state) {
  static constexpr const char* kTexts[] = {"0: NOP",   "1: DOWN",   "2: INIT",
                                           "3: ARMED", "4: ACTIVE", "5: ACTIVE_DEFER"};
  return kTexts[std::min<size_t>(state, std::size(kTexts) - 1)];
}
const char* PhysicalStateText(uint8_t state) {
  static constexpr const char* kTexts[] = {"0: <unknown>",
                                           "1: Sleep",
                                           "2: Polling",
                                           "3: Disabled",
                                           "4: PortConfigurationTraining",
                                           "5: LinkUp",
                                           "6: LinkErrorRecovery",
                                           "7: Phy Test"};
  return state < std::size(kTexts) ? kTexts[state] : "<unknown>";
}

// rate_show of sysfs.c: a lane's rate in tenths of Gb/s, by active_speed.
std::string RateText(const ibv_port_attr& port) {
  struct Lane {
    uint8_t speed;
    uint32_t deci_gbps;
    const char* name;
  };
  static constexpr Lane kLanes[] = {{1, 25, " SDR"},    {2, 50, " DDR"},    {4, 100, " QDR"},
                                    {8, 100, " FDR10"}, {16, 140, " FDR"},  {32, 250, " EDR"},
                                    {64, 500, " HDR"},  {128, 1000, " NDR"}};
  const Lane* lane = &kLanes[0];
  for (const Lane& each : kLanes) {
    if (each.speed == port.active_speed) lane = &each;
  }
  // ib_width_enum_to_int.
  const uint32_t lanes = port.active_width == 2    ? 4
                         : port.active_width == 4  ? 8
                         : port.active_width == 8  ? 12
                         : port.active_width == 16 ? 2
                                                   : 1;
  const uint32_t rate = lane->deci_gbps * lanes;
  return std::to_string(rate / 10) + (rate % 10 != 0 ? ".5" : "") + " Gb/sec (" +
         std::to_string(lanes) + "X" + lane->name + ")";
}

// The interface of an entry of the GID table, empty for an entry without an address.
std::string InterfaceOf(const Device& device, size_t index) {
  if (index >= device.gids.size() || device.gids[index].IsZero()) return {};
  for (const HostAddress& own : device.addresses) {
    if (own.address == device.gids[index]) return own.interface_name;
  }
  // The link-local entry, made from the first address.
  return device.addresses.empty() ? "" : device.addresses[0].interface_name;
}

std::string GidText(const Device& device, size_t index) {
  ibv_gid gid{};
  if (!device.profile.has_ip_gids) {
    if (index == 0) gid = MacGidOf(device.node_guid);
  } else if (index < device.gids.size()) {
    gid = device.gids[index].ToGid();
  }
  return Groups(gid.raw);
}

TextFile Line(const std::string& line) { return {line + "\n"}; }
TextFile WritableLine(const std::string& line) { return {line + "\n", true}; }
TextFile Unreadable(int error) { return {{}, false, error}; }

// Returns a directory of files named 0 to count - 1.
template <class Make>
LazyDirectory Numbered(size_t count, Make make) {
  return [count, make] {
    Directory directory;
    directory.entries.reserve(count);
    for (size_t i = 0; i < count; i++) directory.Add(std::to_string(i), make(i));
    return directory;
  };
}

LazyDirectory GidAttributes(const Device* device, size_t gids) {
  return [device, gids] {
    Directory directory;
    directory.Add("ndevs", Numbered(gids, [device](size_t i) -> TextFile {
                    if (!device->profile.has_ip_gids) return Unreadable(EINVAL);
                    const std::string name = InterfaceOf(*device, i);
                    return name.empty() ? Unreadable(EINVAL) : Line(name);
                  }));
    directory.Add("types", Numbered(gids, [device](size_t i) -> TextFile {
                    if (!device->profile.has_ip_gids) return Line("IB/RoCE v1");
                    const bool is_used = i < device->gids.size() && !device->gids[i].IsZero();
                    if (!is_used) return Unreadable(EINVAL);
                    return Line(device->has_lids() ? "IB/RoCE v1" : "RoCE v2");
                  }));
    return directory;
  };
}

Directory HardwareCounters(const Device& device) {
  Directory directory;
#define RDMAEMU_PORT_COUNTER(name) directory.AddLine(#name, std::to_string(device.counters.name));
  RDMAEMU_PORT_COUNTERS(RDMAEMU_PORT_COUNTER)
#undef RDMAEMU_PORT_COUNTER
  directory.Add("lifespan", WritableLine("12"));  // ms between two reads of a device's counters
  return directory;
}

LazyDirectory CmCounters(const CmMessageCounts* counts) {
  return [counts] {
    Directory directory;
#define RDMAEMU_CM_COUNTER(name) directory.AddLine(#name, std::to_string(counts->name));
    RDMAEMU_CM_COUNTERS(RDMAEMU_CM_COUNTER)
#undef RDMAEMU_CM_COUNTER
    return directory;
  };
}

Directory PortDirectory(Verbs& verbs, const Device& device) {
  const ibv_port_attr port = verbs.QueryPort(device);
  const Device* const at = &device;
  Directory directory;
  directory.AddLine("cap_mask", "0x" + Hex(port.port_cap_flags, 8));
  const bool is_iwarp = device.profile.cm.manager == ConnectionManager::kIwarp;
  if (!is_iwarp) {
    directory.Add("cm_rx_msgs", CmCounters(&device.cm_received));
    directory.Add("cm_tx_msgs", CmCounters(&device.cm_sent));
  }
  const auto gids = static_cast<size_t>(port.gid_tbl_len);
  directory.Add("gid_attrs", GidAttributes(at, gids));
  directory.Add("gids", Numbered(gids, [at](size_t i) { return Line(GidText(*at, i)); }));
  if (!is_iwarp) {
    directory.Add("hw_counters", LazyDirectory([at] { return HardwareCounters(*at); }));
  }
  directory.AddLine("lid", ShortHex(port.lid));
  directory.AddLine("lid_mask_count", std::to_string(port.lmc));
  directory.AddLine("link_layer",
                    port.link_layer == IBV_LINK_LAYER_INFINIBAND ? "InfiniBand" : "Ethernet");
  directory.AddLine("phys_state", PhysicalStateText(port.phys_state));
  if (!device.pkeys.empty()) {
    directory.Add("pkeys", Numbered(device.pkeys.size(),
                                    [at](size_t i) { return Line("0x" + Hex(at->pkeys[i], 4)); }));
  }
  directory.AddLine("rate", RateText(port));
  directory.AddLine("sm_lid", ShortHex(port.sm_lid));
  directory.AddLine("sm_sl", std::to_string(port.sm_sl));
  directory.AddLine("state", StateText(port.state));
  return directory;
}

// Returns the link from a device to its class.
Link Subsystem(const std::string& name) { return {"../../../../class/" + name}; }

Directory DeviceDirectory(Verbs& verbs, const Device& device) {
  Directory directory;
  // The soft drivers report no firmware version here (ib_get_device_fw_str).
  const std::string firmware = device.profile.device.orig_attr.fw_ver;
  directory.AddLine("fw_ver", firmware == "0.0.0" ? "" : firmware);
  directory.Add("node_desc", WritableLine(device.profile.node_desc));
  directory.AddLine("node_guid", GuidText(device.node_guid));
  directory.AddLine("node_type", device.profile.node_type == IBV_NODE_RNIC ? "4: RNIC" : "1: CA");
  const std::string parent = device.addresses.empty() ? "" : device.addresses[0].interface_name;
  if (device.profile.cm.manager == ConnectionManager::kIb && !parent.empty()) {
    directory.AddLine("parent", parent);
  }
  directory.Add("ports", LazyDirectory([&verbs, &device] {
                  Directory ports;
                  ports.Add(std::to_string(Device::kPort), LazyDirectory([&verbs, &device] {
                              return PortDirectory(verbs, device);
                            }));
                  return ports;
                }));
  directory.Add("subsystem", Subsystem("infiniband"));
  directory.AddLine("sys_image_guid", GuidText(device.node_guid));
  directory.Add("uevent", WritableLine("NAME=" + device.name));
  return directory;
}

std::string NumberText(uint32_t major, uint32_t minor) {
  return std::to_string(major) + ":" + std::to_string(minor);
}

// `mode`: the node's mode in octal, empty for the default of 0600.
std::string EventText(uint32_t major, uint32_t minor, const std::string& node,
                      const std::string& mode) {
  return "MAJOR=" + std::to_string(major) + "\nMINOR=" + std::to_string(minor) +
         "\nDEVNAME=infiniband/" + node + (mode.empty() ? "" : "\nDEVMODE=" + mode);
}

// Only devices whose ports carry MADs have umadN and issmN (rdma_cap_ib_mad).
bool HasMads(const Device& device) { return device.profile.cm.manager == ConnectionManager::kIb; }

struct Nodes {
  std::string uverbs, umad, issm;
};
Nodes NodesOf(const Device& device) {
  const std::string number = std::to_string(DeviceNumber(device));
  return {"uverbs" + number, "umad" + number, "issm" + number};
}

using Devices = std::vector<Device*>;

Directory InfinibandDevices(Verbs& verbs, const Devices& devices) {
  Directory directory;
  for (Device* const device : devices) {
    directory.Add(device->name,
                  LazyDirectory([&verbs, device] { return DeviceDirectory(verbs, *device); }));
  }
  return directory;
}

Directory VerbsDevices(const Devices& devices) {
  Directory directory;
  for (const Device* const device : devices) {
    directory.Add(NodesOf(*device).uverbs, LazyDirectory([device] {
                    const uint32_t minor = kFirstUverbsMinor + DeviceNumber(*device);
                    const bool is_iwarp = !HasMads(*device);
                    Directory node;
                    node.AddLine("abi_version", is_iwarp ? "1" : "2");
                    node.AddLine("dev", NumberText(kInfinibandMajor, minor));
                    node.AddLine("ibdev", device->name);
                    node.Add("subsystem", Subsystem("infiniband_verbs"));
                    node.Add("uevent", WritableLine(EventText(kInfinibandMajor, minor,
                                                              NodesOf(*device).uverbs, "0666")));
                    return node;
                  }));
  }
  return directory;
}

Directory MadNode(const Device& device, const std::string& name, uint32_t minor) {
  Directory node;
  node.AddLine("dev", NumberText(kInfinibandMajor, minor));
  node.AddLine("ibdev", device.name);
  node.AddLine("port", std::to_string(Device::kPort));
  node.Add("subsystem", Subsystem("infiniband_mad"));
  node.Add("uevent", WritableLine(EventText(kInfinibandMajor, minor, name, "")));
  return node;
}

Directory MadDevices(const Devices& devices) {
  Directory directory;
  for (const Device* const device : devices) {
    if (!HasMads(*device)) continue;
    const Nodes nodes = NodesOf(*device);
    const uint32_t number = DeviceNumber(*device);
    directory.Add(nodes.issm, LazyDirectory([device, nodes, number] {
                    return MadNode(*device, nodes.issm, kFirstIssmMinor + number);
                  }));
    directory.Add(nodes.umad, LazyDirectory([device, nodes, number] {
                    return MadNode(*device, nodes.umad, number);
                  }));
  }
  return directory;
}

Directory RdmaCmNode() {
  Directory node;
  node.AddLine("abi_version", kRdmaCmAbi);
  node.AddLine("dev", NumberText(kMiscMajor, kRdmaCmMinor));
  node.Add("subsystem", Subsystem("misc"));
  node.Add("uevent", WritableLine(EventText(kMiscMajor, kRdmaCmMinor, "rdma_cm", "0666")));
  return node;
}

Directory DeviceNodes(const Devices& devices) {
  Directory directory;
  for (const Device* const device : devices) {
    if (!HasMads(*device)) continue;
    directory.Add(NodesOf(*device).issm,
                  CharacterDevice{kInfinibandMajor, kFirstIssmMinor + DeviceNumber(*device), 0600});
  }
  directory.Add("rdma_cm", CharacterDevice{kMiscMajor, kRdmaCmMinor, 0666});
  for (const Device* const device : devices) {
    const uint32_t number = DeviceNumber(*device);
    const Nodes nodes = NodesOf(*device);
    if (HasMads(*device)) {
      directory.Add(nodes.umad, CharacterDevice{kInfinibandMajor, number, 0600});
    }
    directory.Add(nodes.uverbs,
                  CharacterDevice{kInfinibandMajor, kFirstUverbsMinor + number, 0666});
  }
  return directory;
}

// Returns a directory with one entry.
LazyDirectory Only(std::string name, LazyDirectory inner) {
  return [name = std::move(name), inner = std::move(inner)] {
    Directory directory;
    directory.Add(name, inner);
    return directory;
  };
}

using ByClass = std::vector<std::pair<std::string, LazyDirectory>>;

// Returns the directory of a class, which has a link to each of its devices.
Directory Classes(const ByClass& by_class) {
  Directory classes;
  for (const auto& [name, devices] : by_class) {
    classes.Add(name, LazyDirectory([name = name, devices = devices] {
                  Directory directory;
                  if (name == "infiniband_mad") directory.AddLine("abi_version", kUmadAbi);
                  if (name == "infiniband_verbs") {
                    directory.AddLine("abi_version", kUverbsClassAbi);
                  }
                  for (const Directory::Entry& entry : devices().entries) {
                    directory.Add(entry.name,
                                  Link{"../../devices/virtual/" + name + "/" + entry.name});
                  }
                  return directory;
                }));
  }
  return classes;
}

}  // namespace

uint32_t DeviceNumber(const Device& device) { return device.index & IdSpace::Part(0).last(); }

LazyDirectory SystemFiles(Verbs& verbs, std::vector<Device*> devices) {
  // The devices of each class. In the kernel these devices have no parent, so they are virtual.
  const ByClass by_class = {
      {"infiniband", [&verbs, devices] { return InfinibandDevices(verbs, devices); }},
      {"infiniband_mad", [devices] { return MadDevices(devices); }},
      {"infiniband_verbs", [devices] { return VerbsDevices(devices); }},
      {"misc", Only("rdma_cm", RdmaCmNode)}};
  return [by_class, devices] {
    Directory root;
    root.Add("dev", Only("infiniband", [devices] { return DeviceNodes(devices); }));
    root.Add("sys", LazyDirectory([by_class] {
               Directory system;
               system.Add("class", LazyDirectory([by_class] { return Classes(by_class); }));
               system.Add("devices", Only("virtual", [by_class] {
                            Directory all;
                            for (const auto& [name, made] : by_class) all.Add(name, made);
                            return all;
                          }));
               return system;
             }));
    return root;
  };
}

}  // namespace rdmaemu::files
