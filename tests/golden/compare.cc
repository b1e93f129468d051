#include "tests/golden/compare.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "emulator/wire/cm_message.h"
#include "emulator/wire/icrc.h"
#include "emulator/wire/packet.h"
#include "tests/wire/fields.h"

namespace rdmaemu::golden {
namespace {

using dump::Fields;
using dump::Hex;

constexpr uint32_t kEnhancedPacketBlock = 6;
constexpr size_t kBlockHeaderBytes = 8, kPacketHeaderBytes = 28;
constexpr size_t kIpv4Bytes = 20, kIpv6Bytes = 40, kUdpBytes = 8;

uint32_t Little(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  if (at + sizeof value <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::vector<std::string_view> BlocksOf(std::string_view file) {
  std::vector<std::string_view> blocks;
  while (!file.empty()) {
    const size_t length = std::clamp<size_t>(Little(file, 4), kBlockHeaderBytes, file.size());
    blocks.push_back(file.substr(0, length));
    file.remove_prefix(length);
  }
  return blocks;
}

// Returns all fields of a packet's block by name, the packet's own name first.
Fields FieldsOf(std::string_view block) {
  if (Little(block, 0) != kEnhancedPacketBlock || block.size() < kPacketHeaderBytes) {
    return {{"name", "block of type " + std::to_string(Little(block, 0))}};
  }
  const std::string_view packet =
      block.substr(kPacketHeaderBytes, Little(block, kPacketHeaderBytes - 8));
  const auto* const data = reinterpret_cast<const std::byte*>(packet.data());
  const std::span<const std::byte> bytes(data, packet.size());
  const uint64_t time = uint64_t{Little(block, 12)} << 32 | Little(block, 16);
  Fields fields = {{"name", "a packet that is none of RoCE"}, {"time_ns", std::to_string(time)}};
  const size_t ip_bytes =
      !bytes.empty() && (bytes[0] >> 4) == std::byte{4} ? kIpv4Bytes : kIpv6Bytes;
  if (bytes.size() < ip_bytes + kUdpBytes) return fields;
  const auto roce = bytes.subspan(ip_bytes + kUdpBytes);
  const auto parsed = wire::Parse(roce);
  if (!parsed) return fields;
  fields[0].second = parsed->headers.info().name;
  const Fields headers = dump::HeaderFields(parsed->headers);
  fields.insert(fields.end(), headers.begin(), headers.end());
  const auto message = wire::ParseCm(parsed->payload);
  if (parsed->headers.destination_qpn == wire::kGsiQpn && message) {
    fields[0].second = wire::CmName(message->body);
    fields.emplace_back("mad.transaction_id", std::to_string(message->transaction_id));
    const Fields places = dump::CmFields(message->body);
    fields.insert(fields.end(), places.begin(), places.end());
  } else {
    fields.emplace_back("payload", Hex(parsed->payload));
  }
  fields.emplace_back("IP header", Hex(bytes.first(ip_bytes)));
  fields.emplace_back("UDP header", Hex(bytes.subspan(ip_bytes, kUdpBytes)));
  fields.emplace_back("icrc", Hex(roce.last(wire::kIcrcBytes)));
  return fields;
}

std::string Describe(size_t number, std::string_view golden, std::string_view now) {
  const Fields was = FieldsOf(golden), is = FieldsOf(now);
  std::string text = "packet " + std::to_string(number) + " (" + was[0].second + ")";
  if (was[0].second != is[0].second) return text + " is now " + is[0].second;
  for (size_t i = 0; i < std::min(was.size(), is.size()); ++i) {
    if (was[i] != is[i]) {
      return text + ": " + was[i].first + " was " + was[i].second + ", is now " + is[i].second;
    }
  }
  return text + ": bytes that no field explains differ";
}

}  // namespace

std::string FirstDifference(std::string_view golden, std::string_view now) {
  if (golden == now) return {};
  const auto were = BlocksOf(golden), are = BlocksOf(now);
  size_t number = 0;  // of the packet, from 1 as Wireshark counts
  for (size_t i = 0; i < std::min(were.size(), are.size()); ++i) {
    if (Little(were[i], 0) == kEnhancedPacketBlock) ++number;
    if (were[i] != are[i]) return Describe(number, were[i], are[i]);
  }
  const bool more = are.size() > were.size();
  return std::to_string(were.size()) + " blocks were recorded, now there are " +
         std::to_string(are.size()) + "; the first that is " + (more ? "new: " : "missing: ") +
         FieldsOf(more ? are[were.size()] : were[are.size()])[0].second;
}

}  // namespace rdmaemu::golden
