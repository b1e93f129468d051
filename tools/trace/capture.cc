#include "tools/trace/capture.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "emulator/base/net_address.h"
#include "emulator/trace/seconds.h"
#include "emulator/wire/byte_order.h"
#include "emulator/wire/cm_message.h"
#include "emulator/wire/packet.h"

namespace rdmaemu::trace_tools {
namespace {

using wire::LoadBig;

// pcapng (draft-ietf-opsawg-pcapng). All numbers are little-endian.
constexpr uint32_t kSectionBlock = 0x0A0D0D0A, kInterfaceBlock = 1, kPacketBlock = 6;
constexpr uint32_t kLittleEndianMagic = 0x1A2B3C4D;
constexpr size_t kBlockHeadBytes = 8, kBlockMinBytes = 12, kPacketHeadBytes = 20;
constexpr uint16_t kOptionEnd = 0, kOptionName = 2, kOptionResolution = 9;
constexpr uint16_t kLinkEthernet = 1, kLinkRaw = 101;
constexpr size_t kEthernetBytes = 14, kUdpHeadBytes = 8;
constexpr uint8_t kUdp = 17;
constexpr int64_t kTicksOfMicroseconds = 1'000'000, kTicksOfNanoseconds = 1'000'000'000;
// librdmacm's service ids of the InfiniBand connection manager: 0x0000000001 and two more bytes
// (struct cma_hdr is at the start of the private data).
constexpr unsigned kRdmaCmServiceShift = 24;

uint64_t Little(std::string_view bytes, size_t at, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; i++) {
    value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[at + i])) << 8 * i;
  }
  return value;
}

struct Interface {
  std::string name{kUnnamedHost};
  uint16_t link = 0;
  int64_t ticks_per_second = kTicksOfMicroseconds;
};

tl::expected<Interface, std::string> ParseInterface(std::string_view body) {
  Interface interface;
  if (body.size() < 8) return tl::unexpected(std::string("the interface block is too short"));
  interface.link = static_cast<uint16_t>(Little(body, 0, 2));
  if (interface.link != kLinkRaw && interface.link != kLinkEthernet) {
    return tl::unexpected("the link type is " + std::to_string(interface.link) +
                          "; use a capture of link type RAW (101) or Ethernet (1)");
  }
  for (size_t at = 8; at + 4 <= body.size();) {
    const auto code = static_cast<uint16_t>(Little(body, at, 2));
    const size_t bytes = Little(body, at + 2, 2);
    if (code == kOptionEnd || at + 4 + bytes > body.size()) break;
    const std::string_view value = body.substr(at + 4, bytes);
    if (code == kOptionName && !value.empty()) interface.name = value;
    if (code == kOptionResolution && bytes == 1) {
      if (value[0] != 6 && value[0] != 9) {
        return tl::unexpected(std::string("the timestamps are neither in micro- nor nanoseconds"));
      }
      interface.ticks_per_second = value[0] == 9 ? kTicksOfNanoseconds : kTicksOfMicroseconds;
    }
    at += 4 + (bytes + 3) / 4 * 4;
  }
  return interface;
}

struct Datagram {
  NetAddress source, destination;
  uint16_t source_port = 0;
  std::span<const std::byte> payload;
};

// Returns the RoCE datagram in a packet, or nullopt for any other packet.
std::optional<Datagram> ParseDatagram(uint16_t link, std::span<const std::byte> bytes) {
  if (link == kLinkEthernet) {
    if (bytes.size() < kEthernetBytes) return std::nullopt;
    bytes = bytes.subspan(kEthernetBytes);
  }
  if (bytes.empty()) return std::nullopt;
  const unsigned version = static_cast<unsigned>(bytes[0]) >> 4;
  const size_t head = version == 4 ? (static_cast<size_t>(bytes[0]) & 0xf) * 4 : 40;
  if ((version != 4 && version != 6) || head < 20 || bytes.size() < head + kUdpHeadBytes) {
    return std::nullopt;
  }
  if (static_cast<uint8_t>(bytes[version == 4 ? 9 : 6]) != kUdp) return std::nullopt;
  Datagram datagram;
  if (version == 4) {
    datagram.source = NetAddress::Ipv4(static_cast<uint32_t>(LoadBig<4>(bytes.data() + 12)));
    datagram.destination = NetAddress::Ipv4(static_cast<uint32_t>(LoadBig<4>(bytes.data() + 16)));
  } else {
    for (size_t i = 0; i < 16; i++) {
      datagram.source.bytes[i] = static_cast<uint8_t>(bytes[8 + i]);
      datagram.destination.bytes[i] = static_cast<uint8_t>(bytes[24 + i]);
    }
  }
  const std::byte* const udp = bytes.data() + head;
  const size_t length = LoadBig<2>(udp + 4);
  if (LoadBig<2>(udp + 2) != wire::kRoceUdpPort || length < kUdpHeadBytes ||
      head + length > bytes.size()) {
    return std::nullopt;
  }
  datagram.source_port = static_cast<uint16_t>(LoadBig<2>(udp));
  datagram.payload = bytes.subspan(head + kUdpHeadBytes, length - kUdpHeadBytes);
  return datagram;
}

// Returns the bytes as hexadecimal digits, without the zeros at the end. A message always contains
// the whole field, so the zeros are mostly padding.
std::string HexOf(std::span<const uint8_t> bytes) {
  while (!bytes.empty() && bytes.back() == 0) bytes = bytes.first(bytes.size() - 1);
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 0xf];
  }
  return text;
}

template <class Body>
void DescribeCm(const Body& body, Json& fields) {
  if constexpr (requires { body.local_comm_id; }) fields["local_comm_id"] = body.local_comm_id;
  if constexpr (requires { body.remote_comm_id; }) fields["remote_comm_id"] = body.remote_comm_id;
  if constexpr (requires { body.request_id; }) fields["request_id"] = body.request_id;
  if constexpr (requires { body.reason; }) fields["reason"] = body.reason;
  if constexpr (requires { body.local_qpn; }) fields["local_qpn"] = body.local_qpn;
  std::span<const uint8_t> data = body.private_data;
  if constexpr (requires { body.service_id; }) {
    fields["service_id"] = body.service_id;
    if (body.service_id >> kRdmaCmServiceShift == 1 && wire::ParseRdmaCmHeader(data)) {
      data = data.subspan(wire::RdmaCmHeader::kBytes);
    }
  }
  if (const std::string hex = HexOf(data); !hex.empty()) fields["private_data"] = hex;
}

void DescribePacket(const Datagram& datagram, Json& fields) {
  fields["source"] = datagram.source.ToString();
  fields["destination"] = datagram.destination.ToString();
  fields["source_port"] = datagram.source_port;
  const auto packet = wire::Parse(datagram.payload);
  if (!packet) {
    fields["what"] = "malformed";
    return;
  }
  const wire::PacketHeaders& headers = packet->headers;
  const wire::OpcodeInfo& info = headers.info();
  fields["object"] = "qp " + std::to_string(headers.destination_qpn);
  fields["what"] = info.name;
  fields["destination_qpn"] = headers.destination_qpn;
  fields["psn"] = headers.psn;
  fields["bytes"] = packet->payload.size();
  if (headers.ack_request) fields["ack_request"] = true;
  if (info.deth) fields["source_qpn"] = headers.source_qpn;
  if (info.reth) fields["dma_length"] = headers.dma_length;
  if (info.aeth) {
    const unsigned kind = headers.syndrome & 0x60u;
    fields["syndrome"] = headers.syndrome;
    fields["answer"] = kind == static_cast<unsigned>(wire::AckKind::kAck)      ? "ACK"
                       : kind == static_cast<unsigned>(wire::AckKind::kRnrNak) ? "RNR NAK"
                                                                               : "NAK";
  }
  if (headers.destination_qpn != wire::kGsiQpn || !info.deth) return;
  const auto message = wire::ParseCm(packet->payload);
  if (!message) return;
  fields["what"] = std::string("CM ") + wire::CmName(message->body);
  std::visit([&](const auto& body) { DescribeCm(body, fields); }, message->body);
}

class CaptureReader {
 public:
  explicit CaptureReader(std::string_view bytes) : left_(bytes) {}

  // Appends a line for each packet to `lines`. Returns the error, if any, without the file's name.
  tl::expected<void, std::string> Read(std::string& lines) {
    while (!left_.empty()) {
      const size_t bytes = left_.size() < kBlockHeadBytes ? 0 : Little(left_, 4, 4);
      if (left_.size() < kBlockHeadBytes || bytes > left_.size()) {
        is_cut_ = true;
        return {};
      }
      if (bytes < kBlockMinBytes || bytes % 4 != 0) return Wrong("the block has a wrong length");
      const std::string_view body = left_.substr(kBlockHeadBytes, bytes - kBlockMinBytes);
      if (const auto read = ReadBlock(static_cast<uint32_t>(Little(left_, 0, 4)), body, lines);
          !read) {
        return read;
      }
      left_.remove_prefix(bytes);
    }
    return {};
  }
  bool is_cut() const { return is_cut_; }

 private:
  tl::unexpected<std::string> Wrong(const std::string& why) const {
    return tl::unexpected("packet " + std::to_string(packets_ + 1) + ": " + why);
  }

  tl::expected<void, std::string> ReadBlock(uint32_t type, std::string_view body,
                                            std::string& lines) {
    if (type == kSectionBlock) {
      if (body.size() < 4 || Little(body, 0, 4) != kLittleEndianMagic) {
        return Wrong("the section is big-endian; convert it with tcpdump or editcap");
      }
      interfaces_.clear();
    } else if (type == kInterfaceBlock) {
      auto interface = ParseInterface(body);
      if (!interface) return Wrong(interface.error());
      interfaces_.push_back(std::move(*interface));
    } else if (type == kPacketBlock) {
      return ReadPacket(body, lines);
    }
    return {};
  }

  tl::expected<void, std::string> ReadPacket(std::string_view body, std::string& lines) {
    const size_t captured = body.size() < kPacketHeadBytes ? 0 : Little(body, 12, 4);
    if (body.size() < kPacketHeadBytes || captured > body.size() - kPacketHeadBytes) {
      return Wrong("the packet block is too short");
    }
    const size_t index = Little(body, 0, 4);
    if (index >= interfaces_.size()) return Wrong("the packet names an unknown interface");
    if (packets_ == kMaxRecords) {
      return Wrong("the capture has more than " + std::to_string(kMaxRecords) + " packets");
    }
    const Interface& interface = interfaces_[index];
    const uint64_t ticks = Little(body, 4, 4) << 32 | Little(body, 8, 4);
    const int64_t scale = kTicksOfNanoseconds / interface.ticks_per_second;
    if (ticks > static_cast<uint64_t>(INT64_MAX / 4 / scale)) return Wrong("the time is too late");
    packets_++;
    Json fields = {{"host", interface.name},
                   {"process", 0},
                   {"kind", "packet"},
                   {"object", ""},
                   {"what", "other"}};
    const auto bytes = std::as_bytes(std::span(body.substr(kPacketHeadBytes, captured)));
    if (const auto datagram = ParseDatagram(interface.link, bytes)) {
      DescribePacket(*datagram, fields);
    }
    lines += "{\"time\":";
    trace::AppendSeconds(Duration(static_cast<int64_t>(ticks) * scale), lines);
    lines += "," + JsonText(fields).substr(1) + "\n";
    return {};
  }

  std::string_view left_;
  std::vector<Interface> interfaces_;
  size_t packets_ = 0;
  bool is_cut_ = false;
};

// Returns a text that identifies a CM message on both sides: "CM REQ", then its ids. Returns an
// empty text for other records.
std::string CmKey(const Record& record) {
  const bool is_of_host = record.kind.starts_with("cm.") && record.kind != "cm.event";
  if (!is_of_host && !record.what.starts_with("CM ")) return {};
  const Json fields = FieldsOf(record);
  std::string key = is_of_host ? "CM " + record.what : record.what;
  for (const char* name : {"local_comm_id", "remote_comm_id", "request_id"}) {
    const auto it = fields.find(name);
    key += " " + (it == fields.end() ? "" : JsonText(*it));
  }
  return key;
}

// Returns the time of each CM message's first record.
std::map<std::string, int64_t> CmTimes(const Trace& trace) {
  std::map<std::string, int64_t> times;
  for (const Record& record : trace.records) {
    if (std::string key = CmKey(record); !key.empty()) {
      times.try_emplace(std::move(key), record.time_ns);
    }
  }
  return times;
}

}  // namespace

void AlignCapture(const std::vector<Trace*>& traces, Trace& capture) {
  if (capture.records.empty()) return;
  for (const Trace* trace : traces) {
    if (!trace->has_own_clock || trace->records.front().host != capture.records.front().host) {
      continue;
    }
    const auto of_host = CmTimes(*trace);
    for (const auto& [key, time] : CmTimes(capture)) {
      const auto it = of_host.find(key);
      if (it == of_host.end()) continue;
      const int64_t shift = it->second - time;
      for (Record& record : capture.records) record.time_ns += shift;
      capture.has_own_clock = true;
      return;
    }
  }
}

bool IsCapture(std::string_view bytes) {
  return bytes.size() >= 4 && Little(bytes, 0, 4) == kSectionBlock;
}

tl::expected<void, std::string> ReadCapture(std::string name, std::string_view bytes,
                                            Trace& trace) {
  CaptureReader reader(bytes);
  std::string lines;
  if (const auto read = reader.Read(lines); !read) {
    return tl::unexpected(name + ": " + read.error());
  }
  if (const auto read = ReadTrace(std::move(name), std::move(lines), trace); !read) return read;
  trace.is_cut = reader.is_cut();
  trace.of_host = trace.of_capture = true;
  trace.has_own_clock = false;  // a capture counts from 1970
  return {};
}

}  // namespace rdmaemu::trace_tools
