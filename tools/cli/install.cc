// `rdmaemu install`: copies the built or installed files below a prefix.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tools/cli/commands.h"
#include "tools/cli/environment.h"

namespace rdmaemu::cli {
namespace {

namespace fs = std::filesystem;

// The list of all paths below a prefix, one per line (tools/install/BUILD).
constexpr const char* kManifest = "share/rdmaemu/files";
constexpr size_t kMaxFiles = 10000;

// Finds the files: in an installed prefix, or in Bazel's output.
runtime::OrMessage<fs::path> Source(const fs::path& binary) {
  const fs::path here = binary.parent_path();
  for (const fs::path& tree : {here / "..", here / "../install/tree"}) {
    std::error_code error;
    if (fs::exists(tree / kManifest, error)) return tree.lexically_normal();
  }
  return tl::unexpected("there is nothing to install beside " + binary.string() +
                        "; use tools/rdmaemu install, or build it first:"
                        " bazel build --config=opt //tools/install:tree");
}

// Reads the manifest, or returns its error. No path may leave the prefix.
runtime::OrMessage<std::vector<fs::path>> ReadManifest(const fs::path& file) {
  std::ifstream stream(file);
  std::vector<fs::path> paths;
  for (std::string line; std::getline(stream, line);) {
    const fs::path path(line);
    bool inside = !line.empty() && path.is_relative() && paths.size() < kMaxFiles;
    for (const fs::path& part : path) inside &= part != "..";
    if (!inside) return tl::unexpected(file.string() + " is damaged: \"" + line + "\"");
    paths.push_back(path);
  }
  if (paths.empty()) return tl::unexpected("cannot read " + file.string());
  return paths;
}

// Copies under another name first. A library that is in use is then replaced atomically.
std::error_code Replace(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_directories(to.parent_path(), error);
  if (error) return error;
  const fs::path fresh = to.string() + ".new." + std::to_string(getpid());
  fs::copy_file(from, fresh, fs::copy_options::overwrite_existing, error);
  // Built files are read-only. The owner must be able to replace and remove installed files.
  if (!error) fs::permissions(fresh, fs::perms::owner_write, fs::perm_options::add, error);
  if (!error) fs::rename(fresh, to, error);
  std::error_code ignored;
  if (error) fs::remove(fresh, ignored);
  return error;
}

}  // namespace

int Install(const std::string& prefix) {
  const auto source = Source(BinaryPath());
  if (!source) return Fail(kFailed, source.error());
  const auto paths = ReadManifest(*source / kManifest);
  if (!paths) return Fail(kFailed, paths.error());
  const fs::path target = fs::absolute(prefix).lexically_normal();
  std::error_code error;
  if (fs::equivalent(*source, target, error)) {
    return Fail(kUsage, target.string() + " is where this rdmaemu is installed already");
  }
  for (const fs::path& path : *paths) {
    if (const std::error_code failed = Replace(*source / path, target / path)) {
      return Fail(kFailed, "cannot write " + (target / path).string() + ": " + failed.message() +
                               (failed == std::errc::permission_denied
                                    ? "; choose a --prefix that is yours, or be root"
                                    : ""));
    }
  }
  const char* const prefix_path = target.c_str();
  printf(
      "%zu files are below %s\nPrograms: export PATH=%s/bin:$PATH\n"
      "Python:   export PYTHONPATH=%s/lib/python3${PYTHONPATH:+:$PYTHONPATH}\n",
      paths->size(), prefix_path, prefix_path, prefix_path);
  return 0;
}

}  // namespace rdmaemu::cli
