// The reply of a host to CallOp::kReadFile.
#pragma once

#include <string_view>

#include "tools/cli/files/tree/file_tree.h"

namespace rdmaemu::cli {

// Returns EIO when the reply is not that of a file.
Result<HostFile> ParseFileReply(std::string_view reply);

}  // namespace rdmaemu::cli
