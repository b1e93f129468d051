// Announced calls. A function of librdmacm that makes a fixed sequence of calls announces the
// sequence first. At the first call of the sequence, the client sends all of it in one message
// (emulator/abi/sequence.h), and keeps the replies for the following calls. Announced calls
// therefore have the same results as others, but need no message each. A call that differs from the
// announced one, or that the host did not execute, is an ordinary call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "emulator/abi/sequence.h"

namespace rdmaemu::client {

// Room for the first call, which precedes the announced ones in the message.
inline constexpr size_t kFirstStepRoom = 256;

}  // namespace rdmaemu::client

// A C name, because rdmaemu_client_announce has one. The owner fills `first_op`, `devices`, `steps`
// and `in`; the rest is the client's.
struct rdmaemu_announcement {
  uint32_t first_op = 0;  // the call that sends the sequence, with any In
  rdmaemu::StepGift first_gift = rdmaemu::StepGift::kNothing;
  uint32_t devices = 0;   // SequenceIn::devices
  uint32_t steps = 0;     // in `in`, behind the first call
  uint32_t in_bytes = 0;  // of the steps

  bool is_sent = false;
  uint32_t results = 0;                                 // in `out`, not taken yet
  uint32_t next_result = sizeof(rdmaemu::SequenceOut);  // offset in `out`
  uint32_t out_bytes = 0;
  uint32_t event_id = 0;                  // of the event in the replies
  rdmaemu_announcement* outer = nullptr;  // the thread's previous announcement

  // The message. The steps begin at kFirstStepRoom.
  alignas(rdmaemu::kStepAlignment) std::byte in[rdmaemu::kMaxSequenceInBytes];
  alignas(rdmaemu::kStepAlignment) std::byte out[rdmaemu::kMaxSequenceOutBytes];
};
