// The objects of a host as files, for tools: qps, ids, mrs and cqs, each object's state
// as lines of "name: value".
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "emulator/cm/cm.h"
#include "emulator/host/files/file_node.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu::files {

// The most listed objects of one kind, so that a directory fits into one reply. If the host has
// more, the directory also has a file named "more".
inline constexpr size_t kMaxListedObjects = 8192;

// The process that created an object. pid 0: the process is no longer connected.
struct Owner {
  uint32_t pid = 0;
  std::string program = {};
};
using OwnerOf = std::function<Owner(ProcessId)>;

// Returns the directory of the host's objects. `verbs` and `cm` must outlive the directories that
// it makes. The files of a directory are valid until the host changes.
LazyDirectory StateFiles(Verbs& verbs, const cm::Cm& cm, OwnerOf owner);

}  // namespace rdmaemu::files
