// Private data of a device whose connection manager is iw_cm. The peer's event reports the data's
// length, but IB CM messages have fields of a fixed length. So the MAD's attribute modifier holds
// the length plus one. Only ECE uses the modifier, which such devices do not support. Data beyond
// the field follows the MAD (CmMessage::more_private_data).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "emulator/base/uapi.h"
#include "emulator/wire/cm_message.h"

namespace rdmaemu::cm {

// The most bytes of private data that siw accepts from its peer, in any message (measured). siw
// counts MPA's depths (4 bytes) within the 256 bytes of MPA_MAX_PRIVDATA, and needs one spare byte.
inline constexpr uint32_t kMostReceivedData = 251;

// Returns false when siw_recv_mpa_rr treats the message as a protocol error.
inline bool IsReceivable(const wire::CmMessage& message) {
  return message.attribute_modifier <= kMostReceivedData + 1;
}

struct CountedData {
  uint32_t attribute_modifier = 0;
  std::vector<uint8_t> rest;
};

inline std::span<const uint8_t> DataOf(const rdma_ucm_conn_param& parameters) {
  return std::span(parameters.private_data, parameters.private_data_len);
}

// Copies `data` into the field after its first `skip` bytes. The rest becomes more_private_data.
template <size_t N>
CountedData CarryCounted(std::span<const uint8_t> data, wire::PrivateData<N>& field, size_t skip) {
  const size_t fitting = std::min(data.size(), N - skip);
  std::ranges::copy(data.first(fitting), field.begin() + static_cast<ptrdiff_t>(skip));
  const auto rest = data.subspan(fitting);
  return {static_cast<uint32_t>(data.size()) + 1, {rest.begin(), rest.end()}};
}

// Extracts a message's private data. A modifier of 0 means that the peer does not count and has
// filled the field.
template <size_t N>
void TakeCounted(const wire::CmMessage& message, const wire::PrivateData<N>& field, size_t skip,
                 rdma_ucm_conn_param& to) {
  const size_t there = std::min<size_t>(N - skip + message.more_private_data.size(), UINT8_MAX);
  const uint32_t counted = message.attribute_modifier;
  const size_t length = counted == 0 ? there : std::min<size_t>(counted - 1, there);
  const size_t fitting = std::min(length, N - skip);
  std::copy_n(field.begin() + static_cast<ptrdiff_t>(skip), fitting, to.private_data);
  std::copy_n(message.more_private_data.begin(), length - fitting, to.private_data + fitting);
  to.private_data_len = static_cast<uint8_t>(length);
}

}  // namespace rdmaemu::cm
