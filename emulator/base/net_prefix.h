// A network: all addresses that begin with the same bits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "emulator/base/net_address.h"

namespace rdmaemu {

struct NetPrefix {
  NetAddress address;
  uint8_t bits = 0;  // of the 128 of an address; an IPv4 network's are 96 more than it says

  // "10.99.0.0/16", "fd99::/64"; without "/BITS" the one address. Nothing for anything else.
  static std::optional<NetPrefix> Parse(std::string_view text);
  // "10.99.0.0/16": the bits behind the prefix are 0.
  std::string ToString() const;
  bool Contains(const NetAddress& other) const;
};

}  // namespace rdmaemu
