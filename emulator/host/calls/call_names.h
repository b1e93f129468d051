// Names of calls for traces and fault rules: "create_qp", "connect".
#pragma once

#include <cstdint>

namespace rdmaemu {

// Returns the name of a program's CallOp `op`, "unknown" for an unknown one.
const char* CallName(uint32_t op);

}  // namespace rdmaemu
