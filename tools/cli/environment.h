// The environment by which a program finds our libraries and its host.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "emulator/runtime/registry.h"

namespace rdmaemu::cli {

using Environment = std::vector<std::pair<std::string, std::string>>;

// Returns the path of this program's own file.
std::string BinaryPath();

// Returns the directories of libibverbs.so.1 and librdmacm.so.1: in an installed tree
// (bin/../lib/rdmaemu), or in Bazel's output (tools/cli/../../shim/{verbs,rdmacm}).
runtime::OrMessage<std::vector<std::string>> LibraryDirectories(const std::string& binary_path);

// Returns the directory of the layer (shim/layer), whose forwarding libraries have the same names.
runtime::OrMessage<std::string> LayerDirectory(const std::string& binary_path);

// Returns the path of a library: in an installed tree (bin/../lib/rdmaemu), or in Bazel's output of
// that package.
runtime::OrMessage<std::string> LibraryPath(const std::string& binary_path,
                                            const std::string& package, const std::string& name);

// The tasks of a program's layer. When all members are empty, the layer is not loaded.
struct Layer {
  std::string device = {};     // the only device that the program sees
  std::string recording = {};  // directory of a recording of what the program saw
  std::string checks = {};     // directory of the findings of usage checks
  // The socket and the page of doors of a host with fault rules (SystemHost).
  std::string faults_socket = {}, faults_doors = {};
  bool is_wanted() const {
    return !device.empty() || !recording.empty() || !checks.empty() || !faults_socket.empty();
  }
};

// Applies changes to this process's environment. An empty value unsets the variable.
void Apply(const Environment& changes);

// Names the host of the program that `rdmaemu run` starts. A library starts no other host of that
// name when the host has ended: run hides the host's options from the program.
inline constexpr const char* kHostOfRunVariable = "RDMAEMU_RUN";

// The value of --clock for programs whose clocks show the time of their hosts.
inline constexpr const char* kProgramClock = "program";

// Returns RDMAEMU_HOST, RDMAEMU_DIR, RDMAEMU_BIN and LD_LIBRARY_PATH. In the last one our
// directories precede the old value. With kProgramClock also adds librdmaemu.so.1 to LD_PRELOAD.
// librdmaemu.so.1 makes the hosts' time the program's time.
runtime::OrMessage<Environment> ProgramEnvironment(const runtime::Registry& registry,
                                                   const runtime::HostOptions& host,
                                                   const Layer& layer = {});

// Returns the variables that pass options to an `rdmaemu host` that a library starts. Empty options
// are left out.
Environment OptionEnvironment(const runtime::HostOptions& options);
// Returns the names of all these variables.
std::vector<std::string> OptionVariables();
// Returns the changes to the environment of a program that must not run on our host. An empty value
// unsets the variable. The changes preload the machine's own libraries, or the layer before them,
// because a program linked with rdmaemu would load ours.
//
// RDMAEMU_SYSTEM_LIBRARIES (DIR:DIR) names directories of other libraries to use as the machine's
// own. Tests set it to the emulator's libraries, whose host the program then keeps. A layer without
// fault rules keeps the rules of an outer `run`.
runtime::OrMessage<Environment> SystemEnvironment(const Layer& layer);
// Returns whether RDMAEMU_SYSTEM_LIBRARIES is set.
bool HasSystemLibraries();
// Fills empty options from the environment.
void ReadOptionEnvironment(runtime::HostOptions& options);

}  // namespace rdmaemu::cli
