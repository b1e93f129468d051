// The positions of all fields of CM messages. Layout visits a message's fields with a Reader or a
// Writer. Positions are IBTA's (chapter 12.6; ibta_vol1_c12.h of the kernel). The byte counts from
// the end of the 24-byte MAD header, the bit from the byte's most significant bit. The width is in
// bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "emulator/wire/cm_message.h"

namespace rdmaemu::wire::cm_fields {

inline constexpr size_t kMadHeaderBytes = 24;
inline constexpr size_t kMessageBytes = kMadBytes - kMadHeaderBytes;

// Returns the number of bytes that a field of `width` bits occupies, at most 8.
constexpr size_t TouchedBytes(size_t bit, size_t width) { return (bit + width + 7) / 8; }
constexpr uint64_t LowBits(size_t width) { return width >= 64 ? ~0ull : (1ull << width) - 1; }

class Reader {
 public:
  template <class M>
  using MessageOf = M&;

  explicit Reader(std::span<const std::byte, kMessageBytes> bytes) : bytes_(bytes) {}

  template <class T>
  void Bits(size_t byte, size_t bit, size_t width, T& value) {
    const size_t touched = TouchedBytes(bit, width);
    uint64_t word = 0;
    for (size_t i = 0; i < touched; ++i) word = word << 8 | static_cast<uint8_t>(bytes_[byte + i]);
    word = word >> (8 * touched - bit - width) & LowBits(width);
    value = static_cast<T>(word);
  }
  template <size_t N>
  void Bytes(size_t byte, std::array<uint8_t, N>& value) {
    static_assert(N <= kMessageBytes);
    std::memcpy(value.data(), bytes_.data() + byte, N);
  }

 private:
  std::span<const std::byte, kMessageBytes> bytes_;
};

// Writes fields into bytes that begin as zeros. Cuts a value that is wider than its field.
class Writer {
 public:
  template <class M>
  using MessageOf = const M&;

  explicit Writer(std::span<std::byte, kMessageBytes> zeroed) : bytes_(zeroed) {}

  template <class T>
  void Bits(size_t byte, size_t bit, size_t width, const T& value) {
    const size_t touched = TouchedBytes(bit, width);
    const uint64_t word = (static_cast<uint64_t>(value) & LowBits(width))
                          << (8 * touched - bit - width);
    for (size_t i = 0; i < touched; ++i) {
      bytes_[byte + i] |= static_cast<std::byte>(word >> 8 * (touched - 1 - i));
    }
  }
  template <size_t N>
  void Bytes(size_t byte, const std::array<uint8_t, N>& value) {
    static_assert(N <= kMessageBytes);
    std::memcpy(bytes_.data() + byte, value.data(), N);
  }

 private:
  std::span<std::byte, kMessageBytes> bytes_;
};

template <class M, class Io>
using Ref = typename Io::template MessageOf<M>;

// A path of a REQ (table 106): primary at 52, alternate at 96, each 44 bytes.
template <class Io>
void Layout(Io& io, size_t base, Ref<CmPath, Io> path) {
  io.Bits(base, 0, 16, path.local_lid);
  io.Bits(base + 2, 0, 16, path.remote_lid);
  io.Bytes(base + 4, path.local_gid.bytes);
  io.Bytes(base + 20, path.remote_gid.bytes);
  io.Bits(base + 36, 0, 20, path.flow_label);
  io.Bits(base + 39, 2, 6, path.packet_rate);
  io.Bits(base + 40, 0, 8, path.traffic_class);
  io.Bits(base + 41, 0, 8, path.hop_limit);
  io.Bits(base + 42, 0, 4, path.service_level);
  io.Bits(base + 42, 4, 1, path.subnet_local);
  io.Bits(base + 43, 0, 5, path.local_ack_timeout);
}

template <class Io>
void Layout(Io& io, Ref<CmReq, Io> req) {
  io.Bits(0, 0, 32, req.local_comm_id);
  io.Bits(5, 0, 24, req.vendor_id);
  io.Bits(8, 0, 64, req.service_id);
  io.Bits(16, 0, 64, req.local_ca_guid);
  io.Bits(28, 0, 32, req.local_qkey);
  io.Bits(32, 0, 24, req.local_qpn);
  io.Bits(35, 0, 8, req.responder_resources);
  io.Bits(39, 0, 8, req.initiator_depth);
  io.Bits(43, 0, 5, req.remote_cm_response_timeout);
  io.Bits(43, 5, 2, req.transport);
  io.Bits(43, 7, 1, req.end_to_end_flow_control);
  io.Bits(44, 0, 24, req.starting_psn);
  io.Bits(47, 0, 5, req.local_cm_response_timeout);
  io.Bits(47, 5, 3, req.retry_count);
  io.Bits(48, 0, 16, req.pkey);
  io.Bits(50, 0, 4, req.path_mtu);
  io.Bits(50, 4, 1, req.rdc_exists);
  io.Bits(50, 5, 3, req.rnr_retry_count);
  io.Bits(51, 0, 4, req.max_cm_retries);
  io.Bits(51, 4, 1, req.srq);
  io.Bits(51, 5, 3, req.extended_transport);
  Layout(io, 52, req.primary);
  Layout(io, 96, req.alternate);
  io.Bytes(140, req.private_data);
}

template <class Io>
void Layout(Io& io, Ref<CmMra, Io> mra) {
  io.Bits(0, 0, 32, mra.local_comm_id);
  io.Bits(4, 0, 32, mra.remote_comm_id);
  io.Bits(8, 0, 2, mra.message);
  io.Bits(9, 0, 5, mra.service_timeout);
  io.Bytes(10, mra.private_data);
}

template <class Io>
void Layout(Io& io, Ref<CmRej, Io> rej) {
  io.Bits(0, 0, 32, rej.local_comm_id);
  io.Bits(4, 0, 32, rej.remote_comm_id);
  io.Bits(8, 0, 2, rej.message);
  io.Bits(9, 0, 7, rej.additional_info_bytes);
  io.Bits(10, 0, 16, rej.reason);
  io.Bytes(12, rej.additional_info);
  io.Bytes(84, rej.private_data);
}

// Reads or writes the vendor id of a REP or a SIDR_REP, which is in several reserved bytes. `io`
// accesses one piece at a time.
template <class Io, class T>
void VendorPiece(Io& io, size_t byte, size_t width, size_t shift, T& vendor_id) {
  uint32_t piece = vendor_id >> shift & static_cast<uint32_t>(LowBits(width));
  io.Bits(byte, 0, width, piece);
  if constexpr (!std::is_const_v<T>) vendor_id |= piece << shift;
}

template <class Io>
void Layout(Io& io, Ref<CmRep, Io> rep) {
  io.Bits(0, 0, 32, rep.local_comm_id);
  io.Bits(4, 0, 32, rep.remote_comm_id);
  io.Bits(8, 0, 32, rep.local_qkey);
  io.Bits(12, 0, 24, rep.local_qpn);
  VendorPiece(io, 15, 8, 16, rep.vendor_id);
  io.Bits(16, 0, 24, rep.local_eecn);
  VendorPiece(io, 19, 8, 8, rep.vendor_id);
  io.Bits(20, 0, 24, rep.starting_psn);
  VendorPiece(io, 23, 8, 0, rep.vendor_id);
  io.Bits(24, 0, 8, rep.responder_resources);
  io.Bits(25, 0, 8, rep.initiator_depth);
  io.Bits(26, 0, 5, rep.target_ack_delay);
  io.Bits(26, 5, 2, rep.failover_accepted);
  io.Bits(26, 7, 1, rep.end_to_end_flow_control);
  io.Bits(27, 0, 3, rep.rnr_retry_count);
  io.Bits(27, 3, 1, rep.srq);
  io.Bits(28, 0, 64, rep.local_ca_guid);
  io.Bytes(36, rep.private_data);
}

template <class Io>
void Layout(Io& io, Ref<CmRtu, Io> rtu) {
  io.Bits(0, 0, 32, rtu.local_comm_id);
  io.Bits(4, 0, 32, rtu.remote_comm_id);
  io.Bytes(8, rtu.private_data);
}

template <class Io>
void Layout(Io& io, Ref<CmDreq, Io> dreq) {
  io.Bits(0, 0, 32, dreq.local_comm_id);
  io.Bits(4, 0, 32, dreq.remote_comm_id);
  io.Bits(8, 0, 24, dreq.remote_qpn);
  io.Bytes(12, dreq.private_data);
}

template <class Io>
void Layout(Io& io, Ref<CmDrep, Io> drep) {
  io.Bits(0, 0, 32, drep.local_comm_id);
  io.Bits(4, 0, 32, drep.remote_comm_id);
  io.Bytes(8, drep.private_data);
}

template <class Io>
void Layout(Io& io, Ref<CmSidrReq, Io> request) {
  io.Bits(0, 0, 32, request.request_id);
  io.Bits(4, 0, 16, request.pkey);
  io.Bits(8, 0, 64, request.service_id);
  io.Bytes(16, request.private_data);
}

template <class Io>
void Layout(Io& io, Ref<CmSidrRep, Io> reply) {
  io.Bits(0, 0, 32, reply.request_id);
  io.Bits(4, 0, 8, reply.status);
  io.Bits(5, 0, 8, reply.additional_info_bytes);
  VendorPiece(io, 6, 16, 8, reply.vendor_id);
  io.Bits(8, 0, 24, reply.qpn);
  VendorPiece(io, 11, 8, 0, reply.vendor_id);
  io.Bits(12, 0, 64, reply.service_id);
  io.Bits(20, 0, 32, reply.qkey);
  io.Bytes(24, reply.additional_info);
  io.Bytes(96, reply.private_data);
}

}  // namespace rdmaemu::wire::cm_fields
