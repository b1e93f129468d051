// Names of calls for the trace: "CreateQp", "CONNECT".
#pragma once

#include <cstdint>

namespace rdmaemu {

// `op` is a CallOp as it came; an unknown one is "unknown".
const char* CallName(uint32_t op);

}  // namespace rdmaemu
