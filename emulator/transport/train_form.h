// The form of a train between two hosts that share memory. It replaces the train's packets: one set
// of headers, one payload, no padding and no ICRC. The receiver makes packets of it. Only
// conversion between bytes and values, like emulator/wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "emulator/transport/train.h"
#include "emulator/wire/icrc.h"
#include "emulator/wire/packet.h"

namespace rdmaemu::transport {

// The most payload bytes of one train between hosts: as many as a QP sends in one turn
// (kWirePacketsPerTurn).
inline constexpr size_t kMaxFormPayloadBytes = size_t{256} << 10;
// The most bytes before the payload.
inline constexpr size_t kMaxFormHeadBytes = 12 + wire::kMaxHeaderBytes;
inline constexpr size_t kMaxFormBytes = kMaxFormHeadBytes + kMaxFormPayloadBytes;

// Returns true when the train has a form. Others have too many bytes, or are one packet that no
// device accepts.
bool HasForm(const Train& train);
// Returns the length of the train's form in bytes.
size_t FormBytes(const Train& train);
// Writes the head to the beginning of `form`, which is as long as FormBytes. Returns the rest, the
// place of the payload.
std::span<std::byte> EmitFormHead(const Train& train, std::span<std::byte> form);
// Returns the length of the head of a form of another host. 0: the form is impossible.
size_t FormHeadBytes(std::span<const std::byte> form);
// Parses a form of another host. Reads each byte of the head once, because the sender may change
// them. `train` gets the payload as `bytes`, and the addresses of `flow`. Returns false if the form
// is impossible.
bool ParseForm(const wire::UdpFlow& flow, std::span<const std::byte> form, Train& train);

// Appends the train's packets. The train has its payload as `bytes`.
void AppendPackets(const Train& train, std::vector<wire::Packet>& packets);
// Calls `datagram` with each packet of the train as a UDP payload with ICRC, in order. The train
// has its payload as `bytes`.
void ForEachDatagram(const Train& train,
                     const std::function<void(std::span<const std::byte>)>& datagram);
// Returns the bytes of the train's packets as UDP payloads.
uint64_t DatagramBytesOf(const Train& train);

}  // namespace rdmaemu::transport
