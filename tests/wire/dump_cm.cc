// Writes every CM message with every pattern of values. Finds the fields by the layout that the
// parser and the writer use. A field's name is its place: byte after the MAD header, bit, width.
#include <type_traits>
#include <utility>

#include "emulator/wire/cm_fields.h"
#include "emulator/wire/cm_message.h"
#include "tests/wire/dump.h"

namespace rdmaemu::dump {
namespace {

using namespace rdmaemu::wire;

// Fills each field of a message and records its value.
class Filler {
 public:
  template <class M>
  using MessageOf = M&;

  explicit Filler(Values& values) : values_(values) {}

  template <class T>
  void Bits(size_t byte, size_t bit, size_t width, T& value) {
    const uint64_t bits = values_.Bits(width);
    value = static_cast<T>(bits);
    Note(byte, bit, width, std::to_string(bits));
  }
  template <size_t N>
  void Bytes(size_t byte, std::array<uint8_t, N>& value) {
    values_.Fill(value);
    Note(byte, 0, 8 * N, Hex(std::span<const uint8_t>(value)));
  }
  const Fields& fields() const { return fields_; }

 private:
  void Note(size_t byte, size_t bit, size_t width, const std::string& value) {
    fields_.emplace_back(
        std::to_string(byte) + "." + std::to_string(bit) + "/" + std::to_string(width), value);
  }
  Values& values_;
  Fields fields_;
};

void DumpMessage(Dump& dump, const UdpFlow& flow, const CmBody& body, Fields fields,
                 Values& values) {
  CmMessage message{.transaction_id = values.Bits(64),
                    .attribute_modifier = static_cast<uint32_t>(values.Bits(32)),
                    .body = body};
  fields.emplace_back("mad.transaction_id", std::to_string(message.transaction_id));
  fields.emplace_back("mad.attribute_modifier", std::to_string(message.attribute_modifier));
  std::array<std::byte, kMadBytes> mad;
  EmitCm(message, mad);
  PacketHeaders headers;
  headers.transport = TransportClass::kUd;
  headers.destination_qpn = kGsiQpn;
  headers.source_qpn = kGsiQpn;
  headers.qkey = kGsiQkey;
  headers.psn = static_cast<uint32_t>(values.Bits(24));
  dump.Packet(CmName(body), flow, headers, mad, fields);
}

template <class Body>
void DumpVariants(Dump& dump, const UdpFlow& flow) {
  for (int variant = 0; variant < Values::kVariants; ++variant) {
    Values values(variant);
    Filler filler(values);
    Body body{};
    cm_fields::Layout(filler, body);
    DumpMessage(dump, flow, body, filler.fields(), values);
  }
}

template <size_t... kIndices>
void DumpAll(Dump& dump, const UdpFlow& flow, std::index_sequence<kIndices...>) {
  (DumpVariants<std::variant_alternative_t<kIndices, CmBody>>(dump, flow), ...);
}

// Writes a REQ as rdma_cm sends it: rdma_cm's header before the user's bytes, in each port space.
void DumpRdmaCm(Dump& dump, const UdpFlow& flow) {
  // tshark detects the header by the prefix 1. IPOIB (2) has another prefix.
  for (const uint64_t port_space : {0x0106u, 0x0111u, 0x013fu}) {
    for (const uint32_t port : {0u, 1u, 7174u, 0xffffu}) {
      Values values(4 + static_cast<int>(port % 5));
      CmReq req;
      req.service_id = port_space << 16 | port;
      req.primary.local_gid = flow.source;
      req.primary.remote_gid = flow.destination;
      const bool ipv4 = flow.source.IsIpv4();
      values.Fill(req.private_data);
      const RdmaCmHeader header{.ip_version = static_cast<uint8_t>(ipv4 ? 4 : 6),
                                .source_port = static_cast<uint16_t>(0xffff - port),
                                .source = flow.source,
                                .destination = flow.destination};
      EmitRdmaCmHeader(header, req.private_data);
      Fields fields = CmFields(req);
      fields.emplace_back("rdma_cm.port_space", std::to_string(port_space & 0xff));
      fields.emplace_back("rdma_cm.port", std::to_string(port));
      fields.emplace_back("rdma_cm.version", "0");
      fields.emplace_back("rdma_cm.ip_version", ipv4 ? "4" : "6");
      fields.emplace_back("rdma_cm.source_port", std::to_string(header.source_port));
      const std::string ip = ipv4 ? "ipv4" : "ipv6";
      fields.emplace_back("rdma_cm.source_" + ip, flow.source.ToString());
      fields.emplace_back("rdma_cm.destination_" + ip, flow.destination.ToString());
      fields.emplace_back(
          "rdma_cm.private_data",
          Hex(std::span<const uint8_t>(req.private_data).subspan(RdmaCmHeader::kBytes)));
      DumpMessage(dump, flow, req, fields, values);
    }
  }
}

}  // namespace

void DumpCmMessages(Dump& dump, const UdpFlow& flow) {
  DumpAll(dump, flow, std::make_index_sequence<std::variant_size_v<CmBody>>());
  DumpRdmaCm(dump, flow);
}

}  // namespace rdmaemu::dump
