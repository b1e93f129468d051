#include "emulator/verbs/mgid.h"

#include <algorithm>

namespace rdmaemu {
namespace {

constexpr uint8_t kMulticast = 0xff, kLinkLocalScope = 0x12;  // transient, scope 2: IPoIB's default
constexpr uint8_t kIpv4Signature = 0x40, kIpv6Signature = 0x60;
constexpr uint32_t kGroupBits = 0x0fffffff;               // of an IPv4 group
constexpr uint16_t kFirstMlid = 0xc000, kMlids = 0x3ffe;  // without 0xffff, the permissive LID

uint32_t LowWordOf(const NetAddress& address) {
  uint32_t word = 0;
  for (size_t i = 12; i < 16; i++) word = word << 8 | address.bytes[i];
  return word;
}

// FNV-1a.
uint32_t HashOf(const NetAddress& address) {
  uint32_t hash = 2166136261u;
  for (const uint8_t byte : address.bytes) hash = (hash ^ byte) * 16777619u;
  return hash;
}

bool HasIpv4Signature(const NetAddress& mgid) {
  return mgid.bytes[0] == kMulticast && mgid.bytes[2] == kIpv4Signature &&
         (mgid.bytes[3] == static_cast<uint8_t>(MgidSignature::kIpoib) ||
          mgid.bytes[3] == static_cast<uint8_t>(MgidSignature::kRdmaCm));
}

}  // namespace

NetAddress MgidOf(const NetAddress& group, uint16_t pkey, MgidSignature signature) {
  const bool is_ipv4 = group.IsIpv4();
  NetAddress mgid;
  mgid.bytes[0] = kMulticast;
  mgid.bytes[1] = kLinkLocalScope;
  mgid.bytes[2] = is_ipv4 ? kIpv4Signature : kIpv6Signature;
  mgid.bytes[3] = static_cast<uint8_t>(signature);
  mgid.bytes[4] = static_cast<uint8_t>(pkey >> 8);
  mgid.bytes[5] = static_cast<uint8_t>(pkey);
  if (is_ipv4) {
    std::copy(group.bytes.begin() + 12, group.bytes.end(), mgid.bytes.begin() + 12);
    mgid.bytes[12] &= kGroupBits >> 24;
  } else {
    std::copy(group.bytes.begin() + 6, group.bytes.end(), mgid.bytes.begin() + 6);
  }
  return mgid;
}

uint16_t MlidOf(const NetAddress& mgid) {
  const NetAddress broadcast = MgidOf(NetAddress::Ipv4(0xffffffff), 0xffff, MgidSignature::kIpoib);
  if (mgid == broadcast) return kFirstMlid;
  return static_cast<uint16_t>(kFirstMlid + 1 + HashOf(mgid) % kMlids);
}

NetAddress WireGroupOf(const NetAddress& mgid) {
  if (mgid.IsIpv4() || mgid.bytes[0] != kMulticast) return mgid;
  if (HasIpv4Signature(mgid)) return NetAddress::Ipv4(0xe0000000 | (LowWordOf(mgid) & kGroupBits));
  return NetAddress::Ipv4(0xef000000 | (HashOf(mgid) & 0xffffff));
}

}  // namespace rdmaemu
