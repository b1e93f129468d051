#include "emulator/base/net_prefix.h"

#include <charconv>

namespace rdmaemu {

std::optional<NetPrefix> NetPrefix::Parse(std::string_view text) {
  const size_t slash = text.find('/');
  const std::optional<NetAddress> address = NetAddress::Parse(text.substr(0, slash));
  if (!address) return std::nullopt;
  const uint8_t most = address->IsIpv4() ? 32 : 128;
  uint8_t bits = most;
  if (slash != text.npos) {
    const std::string_view number = text.substr(slash + 1);
    const char* const end = number.data() + number.size();
    const auto [stop, error] = std::from_chars(number.data(), end, bits);
    if (error != std::errc() || stop != end || bits > most) return std::nullopt;
  }
  return NetPrefix{*address, static_cast<uint8_t>(bits + 128 - most)};
}

std::string NetPrefix::ToString() const {
  NetAddress network = address;
  for (size_t bit = bits; bit < 128; bit++) {
    network.bytes[bit / 8] &= static_cast<uint8_t>(~(0x80 >> bit % 8));
  }
  const int shown = address.IsIpv4() ? bits - 96 : bits;
  return network.ToString() + "/" + std::to_string(shown);
}

bool NetPrefix::Contains(const NetAddress& other) const {
  if (address.IsIpv4() != other.IsIpv4()) return false;
  for (size_t bit = 0; bit < bits; bit++) {
    const auto mask = static_cast<uint8_t>(0x80 >> bit % 8);
    if (((address.bytes[bit / 8] ^ other.bytes[bit / 8]) & mask) != 0) return false;
  }
  return true;
}

}  // namespace rdmaemu
