#include "tools/cli/device_files.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "shim/files/protocol.h"

namespace rdmaemu::cli {
namespace {

constexpr const char* kLibrary = "librdmaemu-files.so";

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Returns LD_PRELOAD without our library, at any position.
std::string OtherPreloads() {
  const std::string all = Variable("LD_PRELOAD");
  std::string others;
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find_first_of(": ", at), all.size());
    const std::string each = all.substr(at, end - at);
    if (!each.empty() && !each.ends_with(kLibrary)) others += (others.empty() ? "" : ":") + each;
    at = end + 1;
  }
  return others;
}

// Returns whether a program can enter its current directory. In a namespace it must do so by path,
// and a parent directory of another user may not permit that.
bool CanEnterCurrentDirectory() {
  std::error_code error;
  const auto path = std::filesystem::current_path(error);
  return error || chdir(path.c_str()) == 0;
}

std::string Why(const std::string& reason) {
  return "cannot show the devices under /sys and /dev: " + reason;
}

}  // namespace

runtime::OrMessage<DeviceFiles> DeviceFiles::Open(SysfsDoor door, const std::string& socket_path) {
  constexpr const char* kWithout = "; --sysfs off runs the program without these files";
  DeviceFiles files;
  std::string refused;
  if (door == SysfsDoor::kAuto || door == SysfsDoor::kFuse) {
    auto mounts = CanEnterCurrentDirectory()
                      ? MountNamespace::Make(socket_path)
                      : runtime::OrMessage<MountNamespace>(tl::unexpected(
                            std::string("chdir to the current directory: ") + strerror(errno)));
    if (mounts) {
      files.mounts_.emplace(std::move(*mounts));
      return files;
    }
    refused = Why(mounts.error());
    if (door == SysfsDoor::kFuse) return tl::unexpected(refused + kWithout);
  }
  if (door == SysfsDoor::kOff) return files;
  auto library = LibraryPath(BinaryPath(), "shim/files", kLibrary);
  auto copies = library ? PreloadDoor::Make(socket_path)
                        : runtime::OrMessage<PreloadDoor>(tl::unexpected(library.error()));
  if (!copies && door == SysfsDoor::kPreload) return tl::unexpected(Why(copies.error()) + kWithout);
  if (!copies) {
    fprintf(stderr, "note: %s, and by copies: %s\n", refused.c_str(), copies.error().c_str());
    return files;
  }
  files.copies_.emplace(std::move(*copies));
  files.library_ = *library;
  return files;
}

Environment DeviceFiles::environment() const {
  const std::string others = OtherPreloads();
  if (!copies_) return {{kFilesVariable, ""}, {"LD_PRELOAD", others}};
  // AddressSanitizer's library ends a program if another library is preloaded before it.
  const std::string asan = Variable("ASAN_OPTIONS");
  return {{kFilesVariable, copies_->directory()},
          {"LD_PRELOAD", others.empty() ? library_ : library_ + ":" + others},
          {"ASAN_OPTIONS", "verify_asan_link_order=0" + (asan.empty() ? "" : ":" + asan)}};
}

}  // namespace rdmaemu::cli
