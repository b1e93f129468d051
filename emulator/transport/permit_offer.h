// The offer of a host to another host of the same user: the other host may lend a permit to a
// program of this host (lent_permits.h), or open a lane from it (lanes.h). It is sent as the
// packets are, and is none of them. A lost offer costs time only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "emulator/base/unfilled_form.h"

namespace rdmaemu::transport {

struct PermitOffer {
  uint32_t destination_qpn, source_qpn;
  uint32_t psn;        // of the next request; all earlier ones are acknowledged
  uint32_t mtu_bytes;  // of the path
  uint32_t rkey;       // of the region that the requests name
  uint32_t rights;     // IBV_ACCESS_REMOTE_*: which requests the program may execute
  uint32_t owner;      // LentPermit::owner
  uint32_t number;     // of the permit
  uint32_t is_lane;    // 1: `page` is a SendLane, and the four members before mean nothing
  JobReference page;   // of the program; `slot` is that of JobPage::lent

  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(this, 1)); }
  // Returns nothing for bytes that are no offer.
  static std::optional<PermitOffer> Parse(std::span<const std::byte> bytes);
};

}  // namespace rdmaemu::transport
