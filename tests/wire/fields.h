// The content of a packet as a list of names and values. Headers use this project's names. A CM
// message's fields use their places ("43.5/2": byte after the MAD header, bit, width; tables.py
// names them).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "emulator/wire/cm_message.h"
#include "emulator/wire/packet.h"

namespace rdmaemu::dump {

using Fields = std::vector<std::pair<std::string, std::string>>;

std::string Hex(std::span<const uint8_t> bytes);
std::string Hex(std::span<const std::byte> bytes);
std::string PlaceName(size_t byte, size_t bit, size_t width);

// Returns the headers of the opcode.
Fields HeaderFields(const wire::PacketHeaders& headers);
Fields CmFields(const wire::CmBody& body);

}  // namespace rdmaemu::dump
