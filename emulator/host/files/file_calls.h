// The call with which programs and tools read a host's files.
#pragma once

#include <cstddef>
#include <span>

#include "emulator/host/calls/reply.h"
#include "emulator/host/files/file_node.h"

namespace rdmaemu::files {

// Answers CallOp::kReadFile (emulator/abi/calls.h). `path` is from a client and may be anything.
Reply ReadFile(const LazyDirectory& root, std::span<const std::byte> path);

}  // namespace rdmaemu::files
