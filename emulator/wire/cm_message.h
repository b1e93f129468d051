// Messages of the IB communication manager (IBTA 12.6, attribute ids 0x10 to 0x1a) as plain
// structs. Parse and emit functions convert them from and to the 256 bytes of a MAD. Field names
// follow the kernel's ibta_vol1_c12.h. All fields are in host order, except GIDs and private data,
// which are bytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "emulator/base/net_address.h"
#include "emulator/base/result.h"

namespace rdmaemu::wire {

inline constexpr size_t kMadBytes = 256;

template <size_t N>
using PrivateData = std::array<uint8_t, N>;  // always the full field, zero-padded

enum class CmMessageType : uint8_t {
  kReq = 0,
  kRep = 1,
  kOther = 2
};  // the "message" field of MRA and REJ
enum class CmTransport : uint8_t { kRc = 0, kUc = 1, kXrc = 3 };

struct CmPath {
  uint16_t local_lid = 0xffff, remote_lid = 0xffff;
  NetAddress local_gid, remote_gid;
  uint32_t flow_label = 0;  // 20 bits
  uint8_t packet_rate = 0;  // 6 bits
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
  uint8_t service_level = 0;  // 4 bits
  bool subnet_local = false;
  uint8_t local_ack_timeout = 0;  // 5 bits

  friend bool operator==(const CmPath&, const CmPath&) = default;
};

struct CmReq {
  uint32_t local_comm_id = 0;
  uint64_t service_id = 0;
  uint64_t local_ca_guid = 0;
  uint32_t local_qkey = 0;
  uint32_t local_qpn = 0;  // 24 bits
  uint8_t responder_resources = 0, initiator_depth = 0;
  uint8_t remote_cm_response_timeout = 0;  // 5 bits
  CmTransport transport = CmTransport::kRc;
  uint8_t extended_transport = 0;  // 3 bits: 1 with kXrc
  bool end_to_end_flow_control = false;
  uint32_t starting_psn = 0;              // 24 bits
  uint8_t local_cm_response_timeout = 0;  // 5 bits
  uint8_t retry_count = 0;                // 3 bits
  uint16_t pkey = 0xffff;
  uint8_t path_mtu = 0;  // ibv_mtu, 4 bits
  bool rdc_exists = false;
  uint8_t rnr_retry_count = 0;  // 3 bits
  uint8_t max_cm_retries = 0;   // 4 bits
  bool srq = false;
  uint32_t vendor_id = 0;  // ECE, 24 bits
  CmPath primary;
  // local_lid 0: none
  CmPath alternate{.local_lid = 0, .remote_lid = 0, .local_gid = {}, .remote_gid = {}};
  PrivateData<92> private_data{};
};
struct CmMra {
  uint32_t local_comm_id = 0, remote_comm_id = 0;
  CmMessageType message = CmMessageType::kReq;
  uint8_t service_timeout = 0;  // 5 bits
  PrivateData<222> private_data{};
};
struct CmRej {
  uint32_t local_comm_id = 0, remote_comm_id = 0;
  CmMessageType message = CmMessageType::kReq;
  uint8_t additional_info_bytes = 0;  // 7 bits
  uint16_t reason = 0;
  PrivateData<72> additional_info{};
  PrivateData<148> private_data{};
};
struct CmRep {
  uint32_t local_comm_id = 0, remote_comm_id = 0;
  uint32_t local_qkey = 0;
  uint32_t local_qpn = 0;
  uint32_t local_eecn = 0;
  uint32_t starting_psn = 0;
  uint8_t responder_resources = 0, initiator_depth = 0;
  uint8_t target_ack_delay = 0;  // 5 bits
  uint8_t failover_accepted = 0;
  bool end_to_end_flow_control = false;
  uint8_t rnr_retry_count = 0;
  bool srq = false;
  uint64_t local_ca_guid = 0;
  uint32_t vendor_id = 0;
  PrivateData<196> private_data{};
};
struct CmRtu {
  uint32_t local_comm_id = 0, remote_comm_id = 0;
  PrivateData<224> private_data{};
};
struct CmDreq {
  uint32_t local_comm_id = 0, remote_comm_id = 0;
  uint32_t remote_qpn = 0;
  PrivateData<220> private_data{};
};
struct CmDrep {
  uint32_t local_comm_id = 0, remote_comm_id = 0;
  PrivateData<224> private_data{};
};
struct CmSidrReq {
  uint32_t request_id = 0;
  uint16_t pkey = 0xffff;
  uint64_t service_id = 0;
  PrivateData<216> private_data{};
};
struct CmSidrRep {
  uint32_t request_id = 0;
  uint8_t status = 0;
  uint8_t additional_info_bytes = 0;
  uint32_t qpn = 0;
  uint64_t service_id = 0;
  uint32_t qkey = 0;
  PrivateData<72> additional_info{};
  PrivateData<136> private_data{};
  uint32_t vendor_id = 0;  // ECE, 24 bits
};

using CmBody =
    std::variant<CmReq, CmMra, CmRej, CmRep, CmRtu, CmDreq, CmDrep, CmSidrReq, CmSidrRep>;

struct CmMessage {
  uint64_t transaction_id = 0;
  uint32_t attribute_modifier = 0;  // ECE's attr_mod in REQ and REP
  CmBody body;
  // Private data that does not fit into the MAD, of devices whose connection manager is iw_cm. This
  // data follows the MAD on the wire. Only such devices send and accept these packets.
  std::vector<uint8_t> more_private_data = {};
};

enum class CmParseError : uint8_t {
  kTooShort,
  kBadClass,
  kBadVersion,
  kBadMethod,
  kUnknownAttribute,
  kTooLong,
};

// The most bytes behind a MAD: as many as one byte counts, rounded to whole words.
inline constexpr size_t kMaxMoreBytes = 256;

// Parses `mad`, the payload of a UD packet to QP 1. LAP and APR give kUnknownAttribute. Bytes
// behind the MAD become more_private_data. More bytes than the attribute modifier counts give
// kTooLong, and so does any byte when the modifier is above kMaxMoreBytes.
tl::expected<CmMessage, CmParseError> ParseCm(std::span<const std::byte> mad);
void EmitCm(const CmMessage& message, std::span<std::byte, kMadBytes> out);
// Appends more_private_data, padded with zeros to whole words. Returns the number of bytes written.
// `out` must have room for them.
size_t EmitMore(const CmMessage& message, std::span<std::byte> out);
const char* CmName(const CmBody& body);  // "REQ", "SIDR_REP"

// The rdma_cm header at the start of the private data of REQ and SIDR_REQ (struct cma_hdr).
struct RdmaCmHeader {
  static constexpr size_t kBytes = 36;
  uint8_t ip_version = 4;  // 4 or 6
  uint16_t source_port = 0;
  NetAddress source, destination;
};
// Returns nothing when rdma_cm does not use the version or the IP version.
std::optional<RdmaCmHeader> ParseRdmaCmHeader(std::span<const uint8_t> private_data);
void EmitRdmaCmHeader(const RdmaCmHeader& header, std::span<uint8_t> private_data);

}  // namespace rdmaemu::wire
