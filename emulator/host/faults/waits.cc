#include "emulator/host/faults/waits.h"

#include <utility>

namespace rdmaemu {

bool FaultWaits::Add(ProcessId process, std::string_view rule, uint64_t times) {
  if (waiting_.size() + ended_.size() >= kMaxWaits) return false;
  waiting_.push_back({process, std::string(rule), times});
  return true;
}

template <class Ends>
void FaultWaits::End(const Ends& ends) {
  std::erase_if(waiting_, [&](Waiting& each) {
    if (!ends(each)) return false;
    ended_.push_back({each.process, std::move(each.rule)});
    return true;
  });
}

void FaultWaits::Fired(std::string_view rule, uint64_t times) {
  End([&](const Waiting& each) { return each.rule == rule && each.times <= times; });
}

void FaultWaits::Removed(std::optional<std::string_view> rule) {
  End([&](const Waiting& each) { return !rule || each.rule == *rule; });
}

void FaultWaits::Forget(ProcessId process) {
  std::erase_if(waiting_, [&](const Waiting& each) { return each.process == process; });
  std::erase_if(ended_, [&](const Ended& each) { return each.process == process; });
}

std::optional<FaultWaits::Ended> FaultWaits::TakeEnded() {
  if (ended_.empty()) return std::nullopt;
  Ended next = std::move(ended_.front());
  ended_.pop_front();
  return next;
}

}  // namespace rdmaemu
