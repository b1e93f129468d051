#include "emulator/runtime/own_processor.h"

namespace rdmaemu::runtime {

std::optional<cpu_set_t> OwnProcessor::Allowed() {
  cpu_set_t now;
  // Fails on machines with more processors than a cpu_set_t has room for.
  if (sched_getaffinity(0, sizeof now, &now) != 0) return std::nullopt;
  if (kept_ && CPU_EQUAL(&now, &kept_->now)) return kept_->before;
  kept_.reset();
  return now;
}

uint32_t OwnProcessor::allowed() {
  const std::optional<cpu_set_t> set = Allowed();
  const int count = set ? CPU_COUNT(&*set) : 0;
  if (count > 1) several_ = set;
  return static_cast<uint32_t>(count);
}

void OwnProcessor::Stay(uint32_t processor) {
  if (processor == (kept_ ? kept_->processor : 0)) return;
  const std::optional<cpu_set_t> allowed = Allowed();
  if (!allowed) return;
  if (processor == 0) {
    if (kept_) sched_setaffinity(0, sizeof kept_->before, &kept_->before);
    kept_.reset();
    return;
  }
  if (processor > CPU_SETSIZE || !CPU_ISSET(processor - 1, &*allowed)) return;
  Kept kept{processor, *allowed, {}};
  CPU_SET(processor - 1, &kept.now);
  if (sched_setaffinity(0, sizeof kept.now, &kept.now) == 0) kept_ = kept;
}

void OwnProcessor::Return(uint32_t processor) {
  const auto is_this_alone = [&](const cpu_set_t& set) {
    return CPU_COUNT(&set) == 1 && CPU_ISSET(processor - 1, &set);
  };
  cpu_set_t now;
  if (processor == 0 || processor > CPU_SETSIZE) return;
  if (!several_ || !CPU_ISSET(processor - 1, &*several_)) return;
  if (sched_getaffinity(0, sizeof now, &now) != 0 || !is_this_alone(now)) return;
  if (!kept_) {
    sched_setaffinity(0, sizeof *several_, &*several_);
  } else if (is_this_alone(kept_->before)) {
    kept_->before = *several_;
  }
}

}  // namespace rdmaemu::runtime
