#include "tests/wire/fields.h"

#include <cstring>
#include <variant>

#include "emulator/wire/cm_fields.h"

namespace rdmaemu::dump {
namespace {

// Records the fields of a message in the order of cm_fields.
class Noter {
 public:
  template <class M>
  using MessageOf = const M&;

  template <class T>
  void Bits(size_t byte, size_t bit, size_t width, const T& value) {
    const uint64_t bits = static_cast<uint64_t>(value) & wire::cm_fields::LowBits(width);
    fields_.emplace_back(PlaceName(byte, bit, width), std::to_string(bits));
  }
  template <size_t N>
  void Bytes(size_t byte, const std::array<uint8_t, N>& value) {
    fields_.emplace_back(PlaceName(byte, 0, 8 * N), Hex(std::span<const uint8_t>(value)));
  }
  Fields Take() { return std::move(fields_); }

 private:
  Fields fields_;
};

}  // namespace

std::string Hex(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const uint8_t byte : bytes) hex += {kDigits[byte >> 4], kDigits[byte & 15]};
  return hex;
}

std::string Hex(std::span<const std::byte> bytes) {
  return Hex(std::span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
}

std::string PlaceName(size_t byte, size_t bit, size_t width) {
  return std::to_string(byte) + "." + std::to_string(bit) + "/" + std::to_string(width);
}

Fields HeaderFields(const wire::PacketHeaders& h) {
  Fields fields;
  const auto note = [&](const char* name, uint64_t value) {
    fields.emplace_back(name, std::to_string(value));
  };
  const wire::OpcodeInfo& info = h.info();
  note("bth.opcode", wire::OpcodeByte(h.transport, h.operation));
  note("bth.solicited", h.solicited);
  note("bth.mig_req", h.mig_req);
  note("bth.pad_bytes", h.pad_bytes);
  note("bth.version", 0);
  note("bth.pkey", h.pkey);
  note("bth.destination_qpn", h.destination_qpn);
  note("bth.ack_request", h.ack_request);
  note("bth.psn", h.psn);
  if (info.deth) {
    note("deth.qkey", h.qkey);
    note("deth.source_qpn", h.source_qpn);
  }
  if (info.reth || info.atomic_eth) {
    note("reth.remote_address", h.remote_address);
    note("reth.rkey", h.rkey);
  }
  if (info.reth) note("reth.dma_length", h.dma_length);
  if (info.atomic_eth) {
    note("atomic_eth.swap_add", h.swap_add);
    note("atomic_eth.compare", h.compare);
  }
  if (info.aeth) {
    note("aeth.syndrome", h.syndrome);
    note("aeth.msn", h.msn);
  }
  if (info.atomic_ack_eth) note("atomic_ack_eth.original", h.original);
  if (info.imm) {
    std::array<uint8_t, 4> immediate;
    std::memcpy(immediate.data(), &h.immediate, sizeof immediate);
    fields.emplace_back("imm.immediate", Hex(std::span<const uint8_t>(immediate)));
  }
  if (info.ieth) {
    std::array<uint8_t, 4> rkey;
    for (size_t i = 0; i < 4; ++i)
      rkey[i] = static_cast<uint8_t>(h.invalidate_rkey >> (24 - 8 * i));
    fields.emplace_back("ieth.invalidate_rkey", Hex(std::span<const uint8_t>(rkey)));
  }
  return fields;
}

Fields CmFields(const wire::CmBody& body) {
  Noter noter;
  std::visit([&](const auto& message) { wire::cm_fields::Layout(noter, message); }, body);
  return noter.Take();
}

}  // namespace rdmaemu::dump
