#include "tools/cli/system_devices.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace rdmaemu::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxDevices = 1024;  // per machine; the kernel's RDMA_MAX_DEVICES is larger

constexpr const char* kSoftRoce =
    "soft-RoCE is set up by root with: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev "
    "eth0;"
    " or run the program in a virtual machine that has it: tools/softroce run -- CMD";

std::string FirstLine(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

// Returns the sorted entries of a directory. Empty if there is no directory.
std::vector<fs::path> Entries(const fs::path& directory) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator each(directory, error), end; !error && each != end;
       each.increment(error)) {
    if (entries.size() < kMaxDevices) entries.push_back(each->path());
  }
  std::ranges::sort(entries);
  return entries;
}

bool CanOpen(const std::string& path) { return access(path.c_str(), R_OK | W_OK) == 0; }

std::string Names(const std::vector<SystemDevice>& devices, bool with_state) {
  std::string names;
  for (const SystemDevice& device : devices) {
    names += (names.empty() ? "" : ", ") + device.name;
    if (with_state && !device.active) names += " (no active port)";
  }
  return names;
}

// Returns the reason why a program cannot open the device. Empty if it can.
std::string WhyNot(const SystemRoots& roots, const SystemDevice& device) {
  if (device.verbs_node.empty()) {
    return "device " + device.name + " has no entry in " + roots.sys +
           "/class/infiniband_verbs; as root: modprobe ib_uverbs";
  }
  const std::string node = roots.dev + "/infiniband/" + device.verbs_node;
  if (device.accessible) return "";
  return "cannot open " + node + " of device " + device.name +
         (fs::exists(node) ? ": permission denied; add your user to its group, or change its mode "
                             "(rdma-core's udev rules set 0666)"
                           : ": it does not exist; if this is a container, pass the device in "
                             "(docker run --device=" +
                                 node + ")");
}

}  // namespace

std::vector<SystemDevice> FindSystemDevices(const SystemRoots& roots) {
  std::vector<SystemDevice> devices;
  const auto nodes = Entries(fs::path(roots.sys) / "class/infiniband_verbs");
  for (const fs::path& entry : Entries(fs::path(roots.sys) / "class/infiniband")) {
    SystemDevice device;
    device.name = entry.filename().string();
    for (const fs::path& port : Entries(entry / "ports")) {
      device.active |= FirstLine(port / "state").find("ACTIVE") != std::string::npos;
    }
    const auto node = std::ranges::find_if(
        nodes, [&](const fs::path& each) { return FirstLine(each / "ibdev") == device.name; });
    if (node != nodes.end()) {
      device.verbs_node = node->filename().string();
      device.accessible = CanOpen(roots.dev + "/infiniband/" + device.verbs_node);
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

runtime::OrMessage<std::vector<std::string>> CheckSystemDevices(const SystemRoots& roots,
                                                                const std::string& wanted) {
  const std::string place = roots.sys + "/class/infiniband";
  std::vector<SystemDevice> devices = FindSystemDevices(roots);
  if (devices.empty()) {
    return tl::unexpected("this machine has no RDMA device (looked for one in " + place + "); " +
                          kSoftRoce);
  }
  if (!wanted.empty()) {
    const std::string names = Names(devices, true);
    std::erase_if(devices, [&](const SystemDevice& each) { return each.name != wanted; });
    if (devices.empty()) {
      return tl::unexpected("this machine has no RDMA device " + wanted + "; in " + place +
                            " there is " + names);
    }
  }
  std::vector<std::string> warnings;
  for (const SystemDevice& device : devices) {
    if (const std::string why = WhyNot(roots, device); !why.empty()) warnings.push_back(why);
  }
  if (warnings.size() == devices.size()) return tl::unexpected(warnings.front());
  if (std::ranges::none_of(devices, &SystemDevice::active)) {
    warnings.push_back("no port is active of: " + Names(devices, false) + "; is its link up?");
  }
  const std::string cm_node = roots.dev + "/infiniband/rdma_cm";
  if (!CanOpen(cm_node)) {
    warnings.push_back("cannot open " + cm_node +
                       ", which librdmacm needs; as root: modprobe rdma_ucm");
  }
  return warnings;
}

}  // namespace rdmaemu::cli
