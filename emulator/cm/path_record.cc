#include "emulator/cm/path_record.h"

#include <algorithm>

namespace rdmaemu::cm {

namespace {

// Offsets of the SA's path record (IBTA 15.2.5.16).
constexpr size_t kServiceIdAt = 0, kDgidAt = 8, kSgidAt = 24, kDlidAt = 40, kSlidAt = 42,
                 kFlowAt = 44, kClassAt = 48, kReversibleAt = 49, kPkeyAt = 50, kSlAt = 53,
                 kMtuAt = 54, kRateAt = 55, kLifetimeAt = 56, kPreferenceAt = 57;
constexpr uint8_t kExactly = 2;  // IB_SA_EQ, a selector

// A path within the subnet has no GRH, and so no hop limit.
uint8_t HopLimit(const PathRecord& path) { return path.dlid != 0 ? 0 : path.hop_limit; }

void Put16(std::span<uint8_t, kPathRecordBytes> out, size_t at, uint16_t value) {
  out[at] = static_cast<uint8_t>(value >> 8);
  out[at + 1] = static_cast<uint8_t>(value);
}
uint16_t Get16(std::span<const uint8_t, kPathRecordBytes> in, size_t at) {
  return static_cast<uint16_t>(in[at] << 8 | in[at + 1]);
}

uint8_t Selected(uint8_t value) { return static_cast<uint8_t>(kExactly << 6 | (value & 0x3f)); }

}  // namespace

void PackPath(const PathRecord& path, std::span<uint8_t, kPathRecordBytes> out) {
  std::ranges::fill(out, uint8_t{0});
  for (size_t i = 0; i < 8; i++) {
    out[kServiceIdAt + i] = static_cast<uint8_t>(path.service_id >> (56 - 8 * i));
  }
  std::ranges::copy(path.dgid.bytes, out.begin() + kDgidAt);
  std::ranges::copy(path.sgid.bytes, out.begin() + kSgidAt);
  Put16(out, kDlidAt, path.dlid);
  Put16(out, kSlidAt, path.slid);
  const uint32_t flow = (path.flow_label & 0xfffff) << 8 | HopLimit(path);
  for (size_t i = 0; i < 4; i++) out[kFlowAt + i] = static_cast<uint8_t>(flow >> (24 - 8 * i));
  out[kClassAt] = path.traffic_class;
  out[kReversibleAt] =
      static_cast<uint8_t>((path.reversible ? 0x80 : 0) | (path.number_of_paths & 0x7f));
  Put16(out, kPkeyAt, path.pkey);
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
  path.dlid = Get16(in, kDlidAt);
  path.slid = Get16(in, kSlidAt);
  uint32_t flow = 0;
  for (size_t i = 0; i < 4; i++) flow = flow << 8 | in[kFlowAt + i];
  path.flow_label = flow >> 8 & 0xfffff;
  path.hop_limit = static_cast<uint8_t>(flow);
  path.traffic_class = in[kClassAt];
  path.reversible = (in[kReversibleAt] & 0x80) != 0;
  path.number_of_paths = in[kReversibleAt] & 0x7f;
  path.pkey = Get16(in, kPkeyAt);
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
  user.dlid = htons(path.dlid);
  user.slid = htons(path.slid);
  user.flow_label = htonl(path.flow_label);
  user.reversible = path.reversible ? 1 : 0;
  user.mtu = path.mtu;
  user.pkey = htons(path.pkey);
  user.hop_limit = HopLimit(path);
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
