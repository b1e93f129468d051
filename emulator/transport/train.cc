#include "emulator/transport/train.h"

#include <algorithm>

namespace rdmaemu::transport {

using wire::Operation;

void Train::DropFront(uint32_t count) {
  const uint64_t skipped = std::min<uint64_t>(uint64_t{count} * mtu_bytes, length());
  if (is_bytes) {
    bytes = bytes.subspan(skipped);
  } else {
    pieces.DropFront(skipped);
  }
  headers.psn = PsnAdd(headers.psn, count);
  headers.remote_address += skipped;
  packets -= count;
  begins = false;
}

void Train::KeepFront(uint32_t count) {
  const uint64_t kept = std::min<uint64_t>(uint64_t{count} * mtu_bytes, length());
  if (is_bytes) {
    bytes = bytes.first(kept);
  } else {
    pieces.Truncate(kept);
  }
  packets = count;
  ends = false;
}

Operation OperationAt(Operation whole, bool first, bool last) {
  if (first && last) return whole;
  switch (whole) {
    case Operation::kSendOnly:
    case Operation::kSendOnlyImm:
    case Operation::kSendOnlyInvalidate:
      if (first) return Operation::kSendFirst;
      if (!last) return Operation::kSendMiddle;
      if (whole == Operation::kSendOnlyImm) return Operation::kSendLastImm;
      if (whole == Operation::kSendOnlyInvalidate) return Operation::kSendLastInvalidate;
      return Operation::kSendLast;
    case Operation::kWriteOnly:
    case Operation::kWriteOnlyImm:
      if (first) return Operation::kWriteFirst;
      if (!last) return Operation::kWriteMiddle;
      return whole == Operation::kWriteOnlyImm ? Operation::kWriteLastImm : Operation::kWriteLast;
    case Operation::kReadResponseOnly:
      if (first) return Operation::kReadResponseFirst;
      return last ? Operation::kReadResponseLast : Operation::kReadResponseMiddle;
    default:
      return whole;
  }
}

Operation WholeOperation(Operation packet) {
  switch (packet) {
    case Operation::kSendFirst:
    case Operation::kSendMiddle:
    case Operation::kSendLast:
      return Operation::kSendOnly;
    case Operation::kSendLastImm:
      return Operation::kSendOnlyImm;
    case Operation::kSendLastInvalidate:
      return Operation::kSendOnlyInvalidate;
    case Operation::kWriteFirst:
    case Operation::kWriteMiddle:
    case Operation::kWriteLast:
      return Operation::kWriteOnly;
    case Operation::kWriteLastImm:
      return Operation::kWriteOnlyImm;
    case Operation::kReadResponseFirst:
    case Operation::kReadResponseMiddle:
    case Operation::kReadResponseLast:
      return Operation::kReadResponseOnly;
    default:
      return packet;
  }
}

}  // namespace rdmaemu::transport
