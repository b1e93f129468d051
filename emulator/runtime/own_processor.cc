#include "emulator/runtime/own_processor.h"

#include "emulator/runtime/clock.h"

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
  return set ? static_cast<uint32_t>(CPU_COUNT(&*set)) : 0;
}

uint32_t OwnProcessor::Other(uint32_t processor) {
  const std::optional<cpu_set_t> set = Allowed();
  if (!set || CPU_COUNT(&*set) != 2) return 0;
  uint32_t other = 0;
  for (uint32_t each = 1, seen = 0; each <= CPU_SETSIZE && seen < 2; each++) {
    if (!CPU_ISSET(each - 1, &*set)) continue;
    seen++;
    if (each != processor) other = other == 0 ? each : UINT32_MAX;
  }
  return other == UINT32_MAX ? 0 : other;
}

void OwnProcessor::Stay(uint32_t processor) {
  if (guard_.TakeFreed()) {
    kept_.reset();
    free_until_ = RealNow() + kFreeFor;
  }
  if (free_until_ && RealNow() < *free_until_) return;
  free_until_.reset();
  if (processor == (kept_ ? kept_->processor : 0)) return;
  const std::optional<cpu_set_t> allowed = Allowed();
  if (!allowed) return;
  if (processor == 0) {
    if (kept_) sched_setaffinity(0, sizeof kept_->before, &kept_->before);
    kept_.reset();
    guard_.Ignore();
    return;
  }
  if (processor > CPU_SETSIZE || !CPU_ISSET(processor - 1, &*allowed)) return;
  Kept kept{processor, *allowed, {}};
  CPU_SET(processor - 1, &kept.now);
  if (sched_setaffinity(0, sizeof kept.now, &kept.now) != 0) return;
  kept_ = kept;
  if (guard_.Watch(kept.now, kept.before)) return;
  Stay(0);
  free_until_ = RealNow() + kFreeFor;
}

}  // namespace rdmaemu::runtime
