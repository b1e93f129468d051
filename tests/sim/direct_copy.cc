#include "tests/sim/direct_copy.h"

namespace rdmaemu::sim {

bool DirectCopy::Offer(uint32_t pid, const MemoryRange& to) {
  const bool is_offered = job_.Offer(pid, to);
  tally_.Count(is_offered ? "direct.offered" : "direct.late");
  return is_offered;
}

void DirectCopy::Decline() {
  if (job_.Decline()) tally_.Count("direct.declined");
}

bool DirectCopy::Withdraw() {
  const bool was_offered = job_.was_offered(), has_ended = job_.Withdraw();
  if (was_offered && !job_.was_offered()) tally_.Count("direct.withdrawn");
  if (!has_ended) tally_.Count("direct.awaited");
  return has_ended;
}

bool DirectCopy::TakeBack() {
  const bool is_taken_back = job_.TakeBack();
  if (is_taken_back) tally_.Count("direct.recalled");
  return is_taken_back;
}

}  // namespace rdmaemu::sim
