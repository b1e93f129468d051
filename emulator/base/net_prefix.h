// An IP network: all addresses that begin with the same bits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "emulator/base/net_address.h"

namespace rdmaemu {

struct NetPrefix {
  NetAddress address;
  uint8_t bits = 0;  // of 128; an IPv4 network has 96 more than its text says

  // Parses "10.99.0.0/16" or "fd99::/64". An address without "/BITS" is a network of one address.
  // Returns nothing for any other text.
  static std::optional<NetPrefix> Parse(std::string_view text);
  // Returns text such as "10.99.0.0/16". The bits behind the prefix are 0.
  std::string ToString() const;
  bool Contains(const NetAddress& other) const;
};

}  // namespace rdmaemu
