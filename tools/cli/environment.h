// The environment that makes a program find our libraries and its host.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "emulator/runtime/registry.h"

namespace rdmaemu::cli {

using Environment = std::vector<std::pair<std::string, std::string>>;

// This program's own file.
std::string BinaryPath();

// The directories of libibverbs.so.1 and librdmacm.so.1, in an installed tree
// (bin/../lib/rdmaemu) or as Bazel lays them out (tools/cli/../../shim/{verbs,rdmacm}).
runtime::OrMessage<std::vector<std::string>> LibraryDirectories(const std::string& binary_path);

// The preload layer (shim/layer), where those are.
runtime::OrMessage<std::string> LayerPath(const std::string& binary_path);

// The value of --clock with which programs live in the time of their hosts.
inline constexpr const char* kProgramClock = "program";

// RDMAEMU_HOST, RDMAEMU_DIR, RDMAEMU_BIN and LD_LIBRARY_PATH, ours before what it had. With that
// clock also what gives the program its hosts' time: librdmaemu.so.1 in LD_PRELOAD.
runtime::OrMessage<Environment> ProgramEnvironment(const runtime::Registry& registry,
                                                   const runtime::HostOptions& host);

// What tells `rdmaemu host` its options where a library starts it; empty options are left out.
Environment OptionEnvironment(const runtime::HostOptions& options);
// The names of all of them.
std::vector<std::string> OptionVariables();
// What must change in the environment of a program that is not to run on a host of ours: an empty
// value stands for a variable that goes. A `device` (may be empty) is the one that it sees. The
// machine's own libraries are preloaded, because a program that is linked with rdmaemu finds ours.
runtime::OrMessage<Environment> SystemEnvironment(const std::string& device);
// Takes the options that are still empty from there.
void ReadOptionEnvironment(runtime::HostOptions& options);

}  // namespace rdmaemu::cli
