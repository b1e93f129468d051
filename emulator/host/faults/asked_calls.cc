#include "emulator/host/faults/asked_calls.h"

namespace rdmaemu {

uint32_t AskedCalls::Begin(ProcessId process) {
  do {
    last_number_++;
  } while (last_number_ == 0 || asked_.contains(last_number_));
  asked_.emplace(last_number_, Asked{process});
  return last_number_;
}

std::optional<uint32_t> AskedCalls::End(uint32_t number) {
  const auto it = asked_.find(number);
  if (it == asked_.end()) return std::nullopt;
  const std::optional<uint32_t> caller = it->second.caller;
  if (caller) {
    asked_.erase(it);
  } else {
    it->second.is_over = true;
  }
  return caller;
}

bool AskedCalls::Come(ProcessId process, uint32_t caller, uint32_t number) {
  const auto it = asked_.find(number);
  if (it == asked_.end() || it->second.process != process) return false;
  if (it->second.is_over) {
    asked_.erase(it);
    return false;
  }
  it->second.caller = caller;
  return true;
}

void AskedCalls::Forget(ProcessId process) {
  std::erase_if(asked_, [&](const auto& each) { return each.second.process == process; });
}

}  // namespace rdmaemu
