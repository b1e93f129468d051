// Several calls in one message: a sequence. Functions of librdmacm make fixed sequences of calls,
// and each call alone would cost a message and its reply. The host executes the calls in order, as
// if each had arrived alone, and returns all replies. The host stops early at a call that fails,
// and where it cannot decide as the library would. The library makes the remaining calls singly.
//
// In of kSequence: SequenceIn, then for each call StepHeader and the call's In. Out: SequenceOut,
// then for each executed call ResultHeader and the call's Out. Each In and Out is padded to
// kStepAlignment bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "emulator/abi/calls.h"

namespace rdmaemu {

inline constexpr uint32_t kMaxSequenceSteps = 8;
inline constexpr size_t kStepAlignment = 8;
inline constexpr size_t kMaxSequenceInBytes = 1536;
inline constexpr size_t kMaxSequenceOutBytes = 2048;
// No call of a sequence has a longer In or Out.
inline constexpr size_t kMaxStepBytes = 512;

// Names the part of a reply that later calls of the sequence need.
enum class StepGift : uint32_t {
  kNothing,
  kQueuePair,   // the reply is CreateQpOut
  kAttributes,  // the reply is ib_uverbs_qp_attr
  kEvent,       // the reply is rdma_ucm_event_resp
};

// Names the fields that the host fills in from the replies to earlier calls of the sequence.
enum class StepLink : uint32_t {
  kNone,
  // In is ModifyQpIn, and gets the latest attributes and their mask. qp_state stays. A handle of 0
  // means the latest queue pair.
  kAttributes,
  kAttributesButDestReads,  // max_dest_rd_atomic stays, too
  kAttributesButReads,      // max_rd_atomic stays, too
  // In is CmCall<rdma_ucm_query>, and gets the latest event's id. The host skips a query that
  // librdmacm does not make after this event.
  kEvent,
};

struct SequenceIn {
  uint32_t steps;
  // Bit N: librdmacm uses the device with index N, which is no RNIC. After an event of an id with
  // another device, librdmacm makes other calls between its queries, or fewer queries. The host
  // then stops before the first query that depends on the device.
  uint32_t devices;
};
struct StepHeader {
  uint32_t op;    // CallOp
  uint32_t size;  // bytes of In that follow
  uint32_t link;  // StepLink
  uint32_t gift;  // StepGift
};
struct SequenceOut {
  uint32_t results;
  uint32_t reserved;
};
struct ResultHeader {
  uint32_t step;  // the number of the call in the sequence, from 0
  int32_t error;  // positive errno; 0: Out follows
  uint32_t size;  // bytes of Out that follow
  uint32_t reserved;
};

constexpr size_t PaddedStep(size_t bytes) {
  return (bytes + kStepAlignment - 1) / kStepAlignment * kStepAlignment;
}

static_assert(sizeof(CreateQpOut) <= kMaxStepBytes && sizeof(ModifyQpIn) <= kMaxStepBytes &&
              sizeof(rdma_ucm_event_resp) <= kMaxStepBytes &&
              sizeof(rdma_ucm_query_addr_resp) <= kMaxStepBytes &&
              sizeof(CmQueryPathOut) <= kMaxStepBytes &&
              sizeof(ib_uverbs_qp_attr) <= kMaxStepBytes &&
              sizeof(CmCall<rdma_ucm_accept>) <= kMaxStepBytes);

}  // namespace rdmaemu
