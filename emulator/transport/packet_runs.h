// Runs of packets from the wire that the engine may handle as one train.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "emulator/wire/packet.h"

namespace rdmaemu::transport {

// Returns the number of leading packets that are consecutive packets of one RC message and may form
// one train. All but the last have the same length and request no acknowledgement.
size_t RunLength(std::span<const wire::Packet> packets);
// Returns the payloads as one range if they are consecutive in memory, as those of a train of
// another host are.
std::optional<std::span<const std::byte>> Joined(std::span<const wire::Packet> packets);

}  // namespace rdmaemu::transport
