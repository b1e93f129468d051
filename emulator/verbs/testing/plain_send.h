// A request that a test posts, in the types of rdma_rxe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "emulator/abi/ring.h"
#include "emulator/abi/send_entry.h"
#include "emulator/base/uapi.h"

namespace rdmaemu::testing {

struct PlainSend {
  rxe_send_wr wr{};
  uint32_t length = 0, num_sge = 0, state = 0;  // as in SendEntry

  // Writes the request to the ring's next slot as the library does, followed by `data`: the SGEs or
  // inline data. The caller publishes it.
  SendEntry& WriteTo(const Ring& ring, std::span<const std::byte> data) const {
    SendEntry& entry = *ring.SlotAs<SendEntry>(ring.Producer());
    entry = {wr.wr_id, wr.opcode, wr.send_flags, {wr.ex.invalidate_rkey},
             length,   num_sge,   state,         {}};
    entry.SetOperation(wr.wr, ring.slot_bytes());
    if (!data.empty()) std::memcpy(entry.Data(), data.data(), data.size());
    return entry;
  }
};

}  // namespace rdmaemu::testing
