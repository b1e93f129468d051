// The sequence of calls by which rdma_get_cm_event(3) fetches an event, and its replies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "emulator/abi/sequence.h"

namespace rdmaemu::testing {

// The queries of the sequence, in order: step 1, step 2 and step 3.
inline constexpr uint32_t kEventQueries[] = {RDMA_USER_CM_QUERY_ADDR, RDMA_USER_CM_QUERY_GID,
                                             RDMA_USER_CM_QUERY_PATH};

// Builds the body of a kSequence.
class SequenceBody {
 public:
  SequenceBody(uint32_t steps, uint32_t devices) { Append(SequenceIn{steps, devices}); }

  template <class Command>
  SequenceBody& Add(uint32_t channel, uint32_t command, const Command& in,
                    StepLink link = StepLink::kNone, StepGift gift = StepGift::kNothing) {
    const CmCall<Command> call{channel, 0, in};
    Append(StepHeader{static_cast<uint32_t>(CallOp::kCmCommand) + command, sizeof call,
                      static_cast<uint32_t>(link), static_cast<uint32_t>(gift)});
    Append(call);
    return *this;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  template <class T>
  void Append(const T& value) {
    const auto from = std::as_bytes(std::span(&value, 1));
    bytes_.insert(bytes_.end(), from.begin(), from.end());
    bytes_.resize(PaddedStep(bytes_.size()));
  }

  std::vector<std::byte> bytes_;
};

inline std::vector<std::byte> EventFetch(uint32_t channel, uint32_t devices) {
  SequenceBody body(1 + std::size(kEventQueries), devices);
  body.Add(channel, RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{}, StepLink::kNone,
           StepGift::kEvent);
  for (const uint32_t option : kEventQueries) {
    body.Add(channel, RDMA_USER_CM_CMD_QUERY, rdma_ucm_query{0, 0, option}, StepLink::kEvent);
  }
  return body.bytes();
}

struct StepResult {
  ResultHeader header;
  std::span<const std::byte> out;
};
// Returns the results in the reply to a sequence, which the host made. They refer to `reply`.
inline std::vector<StepResult> ResultsIn(std::span<const std::byte> reply) {
  std::vector<StepResult> results;
  if (reply.size() < sizeof(SequenceOut)) return results;
  for (auto rest = reply.subspan(sizeof(SequenceOut)); rest.size() >= sizeof(ResultHeader);) {
    StepResult result{};
    std::memcpy(&result.header, rest.data(), sizeof result.header);
    result.out = rest.subspan(sizeof result.header, result.header.size);
    results.push_back(result);
    rest = rest.subspan(sizeof result.header + PaddedStep(result.header.size));
  }
  return results;
}

}  // namespace rdmaemu::testing
