// A device profile: every number and habit in which one kind of device differs from another.
// Profiles are TOML data (emulator/verbs/profiles/*.toml), parsed once; the code has no constants
// of a device.
#pragma once

#include <infiniband/verbs.h>

#include <string>
#include <string_view>

#include "emulator/base/result.h"
#include "emulator/base/time.h"

namespace rdmaemu {

struct TransportProfile {
  uint32_t ack_every_packets;     // an ACK is asked for at least this often (RXE_MAX_PKT_PER_ACK)
  uint32_t max_unacked_packets;   // a sender's window on the wire at first (RXE_MAX_UNACKED_PSNS)
  bool retry_count_7_is_endless;  // rxe: measured
  uint32_t lowest_qpn;
};

struct CmProfile {
  uint8_t response_timeout;     // exponent (20: 4096 ms)
  uint8_t max_retries;          // 15
  uint8_t packet_lifetime;      // exponent, RoCE (18 or 16)
  uint8_t mra_service_timeout;  // exponent (24)
  Duration timewait_floor;      // least timewait
  uint32_t max_backlog;         // 1024
  uint32_t ud_qkey;             // 0x01234567
};

struct Profile {
  std::string name;
  ibv_device_attr_ex device;  // limits; GUIDs are filled in per device
  ibv_port_attr port;         // state and active_mtu are filled in per device
  ibv_node_type node_type;
  ibv_transport_type transport;
  uint32_t max_inline_bytes;
  uint32_t completion_vectors;
  TransportProfile rc;
  CmProfile cm;
  bool flush_receives_posted_in_error;  // hardware: yes; rxe: no
  bool raises_qp_fatal;                 // IBV_EVENT_QP_FATAL and friends; rxe: no
  bool raises_last_wqe_reached;
  bool raises_comm_est;
  bool reregisters_regions;  // ibv_rereg_mr; rxe: no
};

// Parses a profile's TOML; the error says file, line, column and what would have been right.
tl::expected<Profile, std::string> ParseProfile(std::string_view toml, std::string_view file_name);
// The profiles that are built in, by name; nullptr when there is none of that name.
const Profile* BuiltInProfile(std::string_view name);
// "rxe, ..." for messages.
std::string BuiltInProfileNames();

}  // namespace rdmaemu
