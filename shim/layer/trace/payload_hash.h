// The hash of a payload in a recording, and the reasons why there is none.
#pragma once

#include <cstdint>

namespace rdmaemu::layer::trace {

enum class HashState : uint8_t {
  kHashed,
  kNothing,  // no bytes of the program were sent or received
  // The layer cannot read the bytes, or does not know their address.
  kDeviceMemory,
  kNullMr,
  kZeroBased,
  kImplicit,
  kOtherIova,
  kDmabuf,
  kImported,
  kUnreadable,
  kTooManySges,
  kUnknownWork,
  kAmbiguous,
  kNoFields,
  kHandler,
};

struct __attribute__((packed)) PayloadHash {
  HashState state = HashState::kNothing;
  uint32_t crc = 0;  // CRC-32C
};

// Returns the reason of a trace: "none: REASON".
constexpr const char* HashStateText(HashState state) {
  switch (state) {
    case HashState::kDeviceMemory:
      return "none: device memory";
    case HashState::kNullMr:
      return "none: null MR";
    case HashState::kZeroBased:
      return "none: zero-based MR";
    case HashState::kImplicit:
      return "none: implicit MR";
    case HashState::kOtherIova:
      return "none: MR with another iova";
    case HashState::kDmabuf:
      return "none: dmabuf";
    case HashState::kImported:
      return "none: imported MR";
    case HashState::kUnreadable:
      return "none: unreadable memory";
    case HashState::kTooManySges:
      return "none: more than 62 SGEs";
    case HashState::kUnknownWork:
      return "none: unknown work request";
    case HashState::kAmbiguous:
      return "none: several receives with this wr_id";
    case HashState::kNoFields:
      return "none: CQ without byte_len and qp_num";
    case HashState::kHandler:
      return "none: in a signal handler";
    case HashState::kHashed:
    case HashState::kNothing:
      break;
  }
  return "";
}

}  // namespace rdmaemu::layer::trace
