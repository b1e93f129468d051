#include "tools/cli/environment.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "shim/files/protocol.h"

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
constexpr const char* kWireVariable = "RDMAEMU_WIRE";
constexpr const char* kFaultsSocketVariable = "RDMAEMU_LAYER_FAULTS_SOCKET";
constexpr const char* kFaultsDoorsVariable = "RDMAEMU_LAYER_FAULTS_DOORS";
constexpr const char* kSystemLibrariesVariable = "RDMAEMU_SYSTEM_LIBRARIES";

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
          {kPayloadShortcutsVariable, options.payload_shortcuts},
          {kWireVariable, options.wire}};
}

// Returns the path at which the loader finds a library. Returns "" if it finds none, or finds ours.
std::string LoadedLibrary(const char* soname) {
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

// Returns the directories that the loader searches, those of LD_LIBRARY_PATH first.
std::vector<std::string> SearchedDirectories() {
  std::vector<std::string> directories;
  void* const self = dlopen(nullptr, RTLD_LAZY);
  Dl_serinfo size;
  if (self == nullptr || dlinfo(self, RTLD_DI_SERINFOSIZE, &size) != 0) return directories;
  std::vector<char> room(size.dls_size);
  auto* const info = reinterpret_cast<Dl_serinfo*>(room.data());
  if (dlinfo(self, RTLD_DI_SERINFOSIZE, info) != 0 || dlinfo(self, RTLD_DI_SERINFO, info) != 0) {
    return directories;
  }
  for (unsigned i = 0; i < info->dls_cnt; i++) directories.push_back(info->dls_serpath[i].dls_name);
  return directories;
}

std::string Normal(const std::string& path) {
  std::string normal = fs::path(path).lexically_normal().string();
  if (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  return normal;
}

// Returns our own directories. An outer `run` or `env` has put them into LD_LIBRARY_PATH.
std::vector<std::string> OwnDirectories(const std::string& binary) {
  std::vector<std::string> own;
  if (const auto libraries = LibraryDirectories(binary)) own = *libraries;
  if (const auto layer = LayerDirectory(binary)) own.push_back(*layer);
  return own;
}

bool IsIn(const std::vector<std::string>& directories, const std::string& directory) {
  return std::ranges::any_of(
      directories, [&](const std::string& each) { return Normal(each) == Normal(directory); });
}

// Returns the path of the machine's own library, even if our directories are searched before it.
// Returns "" if there is none.
std::string MachineLibrary(const char* soname, const std::vector<std::string>& own) {
  const std::string found = LoadedLibrary(soname);
  if (!found.empty()) return found;
  for (const std::string& directory : SearchedDirectories()) {
    const fs::path path = fs::path(directory) / soname;
    std::error_code error;
    if (!IsIn(own, directory) && fs::exists(path, error)) return path.string();
  }
  return "";
}

// Returns the library's path in the first directory that has it. Returns "" if none has it.
std::string LibraryIn(const std::vector<std::string>& directories, const char* soname) {
  for (const std::string& directory : directories) {
    const fs::path path = fs::path(directory) / soname;
    std::error_code error;
    if (fs::exists(path, error)) return path.string();
  }
  return "";
}

// Returns the variables with the tasks of the layer and the libraries behind it. One library may be
// missing. `directory` contains the layer and its modules.
Environment LayerEnvironment(const Layer& layer, const std::string& directory,
                             const std::string& verbs, const std::string& rdmacm) {
  return {{"RDMAEMU_LAYER_VERBS", verbs},
          {"RDMAEMU_LAYER_RDMACM", rdmacm},
          {"RDMAEMU_LAYER_DEVICE", layer.device},
          {"RDMAEMU_LAYER_TRACE", layer.recording},
          {"RDMAEMU_LAYER_FAULTS",
           layer.faults_socket.empty() ? "" : directory + "/librdmaemu_faults.so"},
          {kFaultsSocketVariable, layer.faults_socket},
          {kFaultsDoorsVariable, layer.faults_doors},
          {"RDMAEMU_LAYER_CHECKS", layer.checks.empty() ? "" : directory + "/librdmaemu_checks.so"},
          {"RDMAEMU_LAYER_CHECKS_DIRECTORY", layer.checks}};
}

// Returns changes that unset all variables of the layer.
Environment WithoutLayer() {
  Environment variables = LayerEnvironment({}, "", "", "");
  for (auto& variable : variables) variable.second.clear();
  return variables;
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
  return tl::unexpected(
      "libibverbs.so.1 and librdmacm.so.1 are not beside " + binary_path +
      "; install rdmaemu again, or in a checkout: bazel build //shim/verbs:libibverbs.so.1"
      " //shim/rdmacm:librdmacm.so.1");
}

runtime::OrMessage<std::string> LayerDirectory(const std::string& binary_path) {
  const fs::path here = fs::path(binary_path).parent_path();
  for (const fs::path& place : {here / "../lib/rdmaemu/layer", here / "../../shim/layer"}) {
    std::error_code error;
    if (fs::exists(place / "libibverbs.so.1", error)) return place.lexically_normal().string();
  }
  return tl::unexpected(
      "the layer's libibverbs.so.1 is not beside " + binary_path +
      "; install rdmaemu again, or in a checkout: bazel build //shim/layer:libibverbs.so.1"
      " //shim/layer:librdmacm.so.1");
}

runtime::OrMessage<std::string> LibraryPath(const std::string& binary_path,
                                            const std::string& package, const std::string& name) {
  const fs::path here = fs::path(binary_path).parent_path();
  for (const fs::path& place : {here / "../lib/rdmaemu", here / "../.." / package}) {
    std::error_code error;
    if (fs::exists(place / name, error)) return (place / name).lexically_normal().string();
  }
  return tl::unexpected(name + " is not beside " + binary_path +
                        "; install rdmaemu again, or in a checkout: bazel build //" + package +
                        ":" + name);
}

void Apply(const Environment& changes) {
  for (const auto& [name, value] : changes) {
    if (value.empty()) {
      unsetenv(name.c_str());
    } else {
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
}

runtime::OrMessage<Environment> ProgramEnvironment(const runtime::Registry& registry,
                                                   const runtime::HostOptions& host,
                                                   const Layer& layer) {
  const std::string binary = BinaryPath();
  const auto ours = LibraryDirectories(binary);
  if (!ours) return tl::unexpected(ours.error());
  std::vector<std::string> path = *ours;
  const std::vector<std::string> own = OwnDirectories(binary);
  for (const std::string& before : Split(Variable("LD_LIBRARY_PATH"), ':')) {
    if (!IsIn(own, before)) path.push_back(before);
  }
  Environment environment = {
      {"RDMAEMU_HOST", host.name}, {"RDMAEMU_DIR", registry.directory()}, {"RDMAEMU_BIN", binary}};
  if (layer.is_wanted()) {
    const auto directory = LayerDirectory(binary);
    if (!directory) return tl::unexpected(directory.error());
    path.insert(path.begin(), *directory);
    const Environment added = LayerEnvironment(
        layer, *directory, ours->front() + "/libibverbs.so.1", ours->back() + "/librdmacm.so.1");
    environment.insert(environment.end(), added.begin(), added.end());
  }
  environment.emplace_back("LD_LIBRARY_PATH", Joined(path, ':'));
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

runtime::OrMessage<Environment> SystemEnvironment(const Layer& wanted) {
  Layer layer = wanted;
  if (layer.faults_socket.empty()) {
    layer.faults_socket = Variable(kFaultsSocketVariable);
    layer.faults_doors = Variable(kFaultsDoorsVariable);
  }
  const std::vector<std::string> given = Split(Variable(kSystemLibrariesVariable), ':');
  Environment changes;
  if (given.empty()) {
    changes = {{"RDMAEMU_HOST", ""},
               {kFilesVariable, ""},
               {"RDMAEMU_DIR", ""},
               {"RDMAEMU_BIN", ""},
               {kHostOfRunVariable, ""}};
    for (const std::string& name : OptionVariables()) changes.emplace_back(name, "");
  }
  // Remove our libraries from the path, if an outer `run` or `env` has added them.
  const std::string binary = BinaryPath();
  const std::vector<std::string> own = OwnDirectories(binary);
  std::vector<std::string> path = Split(Variable("LD_LIBRARY_PATH"), ':');
  std::erase_if(path, [&](const std::string& each) { return IsIn(own, each); });
  if (Variable("RDMAEMU_BACKEND").empty()) changes.emplace_back("RDMAEMU_BACKEND", "system");
  const auto library = [&](const char* soname) {
    return given.empty() ? MachineLibrary(soname, own) : LibraryIn(given, soname);
  };
  const std::string verbs = library("libibverbs.so.1");
  const std::string rdmacm = library("librdmacm.so.1");
  std::vector<std::string> preloaded = {verbs, rdmacm};
  Environment layered = WithoutLayer();
  if (layer.is_wanted()) {
    const auto directory = LayerDirectory(binary);
    if (!directory) return tl::unexpected(directory.error());
    if (verbs.empty()) {
      return tl::unexpected(std::string("there is no libibverbs.so.1; install libibverbs1"));
    }
    layered = LayerEnvironment(layer, *directory, verbs, rdmacm);
    preloaded = {*directory + "/libibverbs.so.1",
                 rdmacm.empty() ? "" : *directory + "/librdmacm.so.1"};
  }
  changes.insert(changes.end(), layered.begin(), layered.end());
  changes.emplace_back("LD_LIBRARY_PATH", Joined(path, ':'));
  std::erase(preloaded, "");
  for (const std::string& before : Split(Variable("LD_PRELOAD"), ':')) {
    if (!IsIn(own, fs::path(before).parent_path().string())) preloaded.push_back(before);
  }
  if (!preloaded.empty()) changes.emplace_back("LD_PRELOAD", Joined(preloaded, ':'));
  return changes;
}

bool HasSystemLibraries() { return !Variable(kSystemLibrariesVariable).empty(); }

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
  if (options.wire.empty()) options.wire = Variable(kWireVariable);
}

}  // namespace rdmaemu::cli
