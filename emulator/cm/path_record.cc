#include "emulator/cm/path_record.h"

#include <algorithm>

namespace rdmaemu::cm {

namespace {

// Offsets of the SA's path record (IBTA 15.2.5.16).
constexpr size_t kServiceIdAt = 0, kDgidAt = 8, kSgidAt = 24, kFlowAt = 44, kClassAt = 48,
                 kReversibleAt = 49, kPkeyAt = 50, kSlAt = 53, kMtuAt = 54, kRateAt = 55,
                 kLifetimeAt = 56, kPreferenceAt = 57;
constexpr uint8_t kExactly = 2;  // IB_SA_EQ, a selector

uint8_t Selected(uint8_t value) { return static_cast<uint8_t>(kExactly << 6 | (value & 0x3f)); }

}  // namespace

void PackPath(const PathRecord& path, std::span<uint8_t, kPathRecordBytes> out) {
  std::ranges::fill(out, uint8_t{0});
  for (size_t i = 0; i < 8; i++) {
    out[kServiceIdAt + i] = static_cast<uint8_t>(path.service_id >> (56 - 8 * i));
  }
  std::ranges::copy(path.dgid.bytes, out.begin() + kDgidAt);
  std::ranges::copy(path.sgid.bytes, out.begin() + kSgidAt);
  const uint32_t flow = (path.flow_label & 0xfffff) << 8 | path.hop_limit;
  for (size_t i = 0; i < 4; i++) out[kFlowAt + i] = static_cast<uint8_t>(flow >> (24 - 8 * i));
  out[kClassAt] = path.traffic_class;
  out[kReversibleAt] =
      static_cast<uint8_t>((path.reversible ? 0x80 : 0) | (path.number_of_paths & 0x7f));
  out[kPkeyAt] = static_cast<uint8_t>(path.pkey >> 8);
  out[kPkeyAt + 1] = static_cast<uint8_t>(path.pkey);
  out[kSlAt] = path.service_level & 0xf;
  out[kMtuAt] = Selected(path.mtu);
  out[kRateAt] = Selected(path.rate);
  out[kLifetimeAt] = Selected(path.packet_lifetime);
  out[kPreferenceAt] = path.preference;
}

PathRecord UnpackPath(std::span<const uint8_t, kPathRecordBytes> in) {
  PathRecord path;
  for (size_t i = 0; i < 8; i++) path.service_id = path.service_id << 8 | in[kServiceIdAt + i];
  std::copy_n(in.begin() + kDgidAt, 16, path.dgid.bytes.begin());
  std::copy_n(in.begin() + kSgidAt, 16, path.sgid.bytes.begin());
  uint32_t flow = 0;
  for (size_t i = 0; i < 4; i++) flow = flow << 8 | in[kFlowAt + i];
  path.flow_label = flow >> 8 & 0xfffff;
  path.hop_limit = static_cast<uint8_t>(flow);
  path.traffic_class = in[kClassAt];
  path.reversible = (in[kReversibleAt] & 0x80) != 0;
  path.number_of_paths = in[kReversibleAt] & 0x7f;
  path.pkey = static_cast<uint16_t>(in[kPkeyAt] << 8 | in[kPkeyAt + 1]);
  path.service_level = in[kSlAt] & 0xf;
  path.mtu = in[kMtuAt] & 0x3f;
  path.rate = in[kRateAt] & 0x3f;
  path.packet_lifetime = std::min<uint8_t>(in[kLifetimeAt] & 0x3f, 31);
  path.preference = in[kPreferenceAt];
  return path;
}

ib_user_path_rec ToUserPath(const PathRecord& path) {
  ib_user_path_rec user = {};
  std::ranges::copy(path.dgid.bytes, user.dgid);
  std::ranges::copy(path.sgid.bytes, user.sgid);
  user.flow_label = htonl(path.flow_label);
  user.reversible = path.reversible ? 1 : 0;
  user.mtu = path.mtu;
  user.pkey = htons(path.pkey);
  user.hop_limit = path.hop_limit;
  user.traffic_class = path.traffic_class;
  user.numb_path = path.number_of_paths;
  user.sl = path.service_level;
  user.mtu_selector = kExactly;
  user.rate_selector = kExactly;
  user.rate = path.rate;
  user.packet_life_time_selector = kExactly;
  user.packet_life_time = path.packet_lifetime;
  user.preference = path.preference;
  return user;
}

}  // namespace rdmaemu::cm
