#include "tools/cli/environment.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

namespace rdmaemu::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAddressVariable = "RDMAEMU_ADDRESS";
constexpr const char* kDeviceVariable = "RDMAEMU_DEVICE";
constexpr const char* kSilentNetVariable = "RDMAEMU_SILENT_NET";
constexpr const char* kGatewayVariable = "RDMAEMU_GATEWAY";
constexpr const char* kPcapVariable = "RDMAEMU_PCAP";
constexpr const char* kTraceVariable = "RDMAEMU_TRACE";
constexpr const char* kScenarioVariable = "RDMAEMU_SCENARIO";
constexpr const char* kClockVariable = "RDMAEMU_CLOCK";
constexpr const char* kSeedVariable = "RDMAEMU_SEED";
constexpr const char* kPayloadShortcutsVariable = "RDMAEMU_PAYLOAD_SHORTCUTS";

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string Joined(const std::vector<std::string>& parts, char separator) {
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty()) text += separator;
    text += part;
  }
  return text;
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

// Returns all options in order. Options that are not given are empty.
Environment AllOptions(const runtime::HostOptions& options) {
  return {{kAddressVariable, Joined(options.addresses, ',')},
          {kDeviceVariable, Joined(options.devices, ',')},
          {kSilentNetVariable, Joined(options.silent_nets, ',')},
          {kGatewayVariable, Joined(options.gateways, ',')},
          {kPcapVariable, options.pcap_path},
          {kTraceVariable, options.trace_path},
          {kScenarioVariable, options.scenario_path},
          {kClockVariable, options.clock},
          {kSeedVariable, options.seed},
          {kPayloadShortcutsVariable, options.payload_shortcuts}};
}

// Returns the path at which the loader finds the machine's own library. Returns "" if it finds
// none, or finds ours.
std::string MachineLibrary(const char* soname) {
  void* const library = dlopen(soname, RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return "";
  link_map* map = nullptr;
  std::string path;
  // Our library has this symbol, or depends on a library that has it.
  if (dlsym(library, "rdmaemu_client_embed") == nullptr &&
      dlinfo(library, RTLD_DI_LINKMAP, &map) == 0) {
    path = map->l_name;
  }
  dlclose(library);
  return path;
}

// Finds a library in an installed tree (bin/../lib/rdmaemu), or in Bazel's output.
runtime::OrMessage<std::string> LibraryPath(const std::string& binary_path,
                                            const std::string& package, const std::string& name) {
  const fs::path here = fs::path(binary_path).parent_path();
  for (const fs::path& place : {here / "../lib/rdmaemu", here / "../.." / package}) {
    std::error_code error;
    if (fs::exists(place / name, error)) return (place / name).lexically_normal().string();
  }
  return tl::unexpected(name + " is not beside " + binary_path + "; build it with: bazel build //" +
                        package + ":" + name);
}

}  // namespace

std::string BinaryPath() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).string();
}

runtime::OrMessage<std::vector<std::string>> LibraryDirectories(const std::string& binary_path) {
  const fs::path here = fs::path(binary_path).parent_path();
  const std::vector<std::vector<fs::path>> layouts = {
      {here / "../lib/rdmaemu"},
      {here / "../../shim/verbs", here / "../../shim/rdmacm"},
  };
  for (const std::vector<fs::path>& layout : layouts) {
    std::error_code error;
    if (!fs::exists(layout.front() / "libibverbs.so.1", error) ||
        !fs::exists(layout.back() / "librdmacm.so.1", error)) {
      continue;
    }
    std::vector<std::string> directories;
    for (const fs::path& directory : layout) {
      directories.push_back(directory.lexically_normal().string());
    }
    return directories;
  }
  return tl::unexpected("libibverbs.so.1 and librdmacm.so.1 are not beside " + binary_path +
                        "; build them with: bazel build //shim/verbs:libibverbs.so.1"
                        " //shim/rdmacm:librdmacm.so.1");
}

runtime::OrMessage<std::string> LayerPath(const std::string& binary_path) {
  return LibraryPath(binary_path, "shim/layer", "librdmaemu_layer.so");
}

runtime::OrMessage<Environment> ProgramEnvironment(const runtime::Registry& registry,
                                                   const runtime::HostOptions& host) {
  const std::string binary = BinaryPath();
  auto directories = LibraryDirectories(binary);
  if (!directories) return tl::unexpected(directories.error());
  for (const std::string& before : Split(Variable("LD_LIBRARY_PATH"), ':')) {
    bool known = false;
    for (const std::string& directory : *directories) known |= directory == before;
    if (!known) directories->push_back(before);
  }
  Environment environment = {{"RDMAEMU_HOST", host.name},
                             {"RDMAEMU_DIR", registry.directory()},
                             {"RDMAEMU_BIN", binary},
                             {"LD_LIBRARY_PATH", Joined(*directories, ':')}};
  if (host.clock != kProgramClock) return environment;
  const auto library = LibraryPath(binary, "emulator/embedded", "librdmaemu.so.1");
  if (!library) return tl::unexpected(library.error());
  std::vector<std::string> preloaded = {*library};
  for (const std::string& before : Split(Variable("LD_PRELOAD"), ':')) {
    if (before != *library) preloaded.push_back(before);
  }
  environment.emplace_back("LD_PRELOAD", Joined(preloaded, ':'));
  environment.emplace_back("RDMAEMU_PROGRAM_TIME_OF_HOSTS", "1");
  return environment;
}

Environment OptionEnvironment(const runtime::HostOptions& options) {
  Environment given = AllOptions(options);
  std::erase_if(given, [](const auto& variable) { return variable.second.empty(); });
  return given;
}

std::vector<std::string> OptionVariables() {
  std::vector<std::string> names;
  for (const auto& variable : AllOptions({})) names.push_back(variable.first);
  return names;
}

runtime::OrMessage<Environment> SystemEnvironment(const std::string& device) {
  Environment changes = {{"RDMAEMU_HOST", ""}, {"RDMAEMU_DIR", ""}, {"RDMAEMU_BIN", ""}};
  for (const std::string& name : OptionVariables()) changes.emplace_back(name, "");
  // Remove our libraries from the path, where an outer `run` or `env` has added them.
  const std::string binary = BinaryPath();
  std::vector<std::string> path = Split(Variable("LD_LIBRARY_PATH"), ':');
  if (const auto ours = LibraryDirectories(binary)) {
    std::erase_if(path, [&](const std::string& each) {
      return std::ranges::find(*ours, fs::path(each).lexically_normal().string()) != ours->end();
    });
  }
  changes.emplace_back("LD_LIBRARY_PATH", Joined(path, ':'));
  if (Variable("RDMAEMU_BACKEND").empty()) changes.emplace_back("RDMAEMU_BACKEND", "system");
  std::vector<std::string> preloaded;
  if (!device.empty()) {
    const auto layer = LayerPath(binary);
    if (!layer) return tl::unexpected(layer.error());
    preloaded.push_back(*layer);
    changes.emplace_back("RDMAEMU_LAYER_DEVICE", device);
  }
  for (const char* soname : {"libibverbs.so.1", "librdmacm.so.1"}) {
    const std::string library = MachineLibrary(soname);
    if (!library.empty()) preloaded.push_back(library);
  }
  for (const std::string& before : Split(Variable("LD_PRELOAD"), ':')) preloaded.push_back(before);
  if (!preloaded.empty()) changes.emplace_back("LD_PRELOAD", Joined(preloaded, ':'));
  return changes;
}

void ReadOptionEnvironment(runtime::HostOptions& options) {
  if (options.addresses.empty()) options.addresses = Split(Variable(kAddressVariable), ',');
  if (options.devices.empty()) options.devices = Split(Variable(kDeviceVariable), ',');
  if (options.silent_nets.empty()) {
    options.silent_nets = Split(Variable(kSilentNetVariable), ',');
  }
  if (options.gateways.empty()) options.gateways = Split(Variable(kGatewayVariable), ',');
  if (options.pcap_path.empty()) options.pcap_path = Variable(kPcapVariable);
  if (options.trace_path.empty()) options.trace_path = Variable(kTraceVariable);
  if (options.scenario_path.empty()) options.scenario_path = Variable(kScenarioVariable);
  if (options.clock.empty()) options.clock = Variable(kClockVariable);
  if (options.seed.empty()) options.seed = Variable(kSeedVariable);
  if (options.payload_shortcuts.empty()) {
    options.payload_shortcuts = Variable(kPayloadShortcutsVariable);
  }
}

}  // namespace rdmaemu::cli
