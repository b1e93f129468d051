#include "emulator/host/files/file_node.h"

#include <algorithm>
#include <cerrno>

namespace rdmaemu::files {

Result<Node> Find(const LazyDirectory& root, std::string_view path) {
  if (path.size() > kMaxPathBytes) return Fail(ENAMETOOLONG);
  Node found = root;
  while (!path.empty()) {
    const size_t slash = std::min(path.find('/'), path.size());
    const std::string_view name = path.substr(0, slash);
    path.remove_prefix(std::min(slash + 1, path.size()));
    const auto* const directory = std::get_if<LazyDirectory>(&found);
    if (directory == nullptr) return Fail(ENOTDIR);
    if (name.empty() || name == ".") continue;
    Directory listed = (*directory)();
    const auto entry = std::ranges::find(listed.entries, name, &Directory::Entry::name);
    if (entry == listed.entries.end()) return Fail(ENOENT);
    // The directory of the node must live until the node has been moved out of it.
    Node next = std::move(entry->node);
    found = std::move(next);
  }
  return found;
}

}  // namespace rdmaemu::files
