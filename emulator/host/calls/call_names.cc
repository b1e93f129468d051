#include "emulator/host/calls/call_names.h"

#include "emulator/abi/call_table.h"

namespace rdmaemu {

const char* CallName(uint32_t op) {
  const CallInfo* const info = InfoOf(op);
  return info == nullptr ? "unknown" : info->name.text();
}

}  // namespace rdmaemu
