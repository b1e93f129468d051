#include "emulator/transport/permit_offer.h"

#include <cstring>
#include <type_traits>

#include "emulator/abi/copy_jobs.h"
#include "emulator/transport/psn.h"

namespace rdmaemu::transport {

static_assert(std::has_unique_object_representations_v<PermitOffer>, "no byte is unset");

std::optional<PermitOffer> PermitOffer::Parse(std::span<const std::byte> bytes) {
  PermitOffer offer;
  if (bytes.size() != sizeof offer) return std::nullopt;
  std::memcpy(static_cast<void*>(&offer), bytes.data(), sizeof offer);
  if (offer.is_lane > 1 || offer.page.slot >= JobPage::kLentPermits ||
      (offer.number == 0 && offer.is_lane == 0) || (offer.psn & ~wire::kPsnMask) != 0) {
    return std::nullopt;
  }
  return offer;
}

}  // namespace rdmaemu::transport
