#include "emulator/wire/cm_message.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "emulator/wire/byte_order.h"
#include "emulator/wire/cm_fields.h"

namespace rdmaemu::wire {
namespace {

using cm_fields::kMadHeaderBytes;
using cm_fields::kMessageBytes;

// The header of every MAD (IBTA 13.4.3, ib_mad.h): byte offsets, and the values of a CM message.
constexpr size_t kBaseVersionAt = 0, kClassAt = 1, kClassVersionAt = 2, kMethodAt = 3;
constexpr size_t kTransactionAt = 8, kAttributeAt = 16, kModifierAt = 20;
constexpr std::byte kBaseVersion{1}, kCmClass{7}, kCmClassVersion{2}, kMethodSend{3};

// A body's attribute id is its index in CmBody plus the id of REQ.
constexpr uint16_t kFirstAttribute = 0x10;
template <size_t kIndex, class T>
constexpr bool kIs = std::is_same_v<std::variant_alternative_t<kIndex, CmBody>, T>;
static_assert(kIs<0, CmReq> && kIs<1, CmMra> && kIs<2, CmRej> && kIs<3, CmRep> && kIs<4, CmRtu> &&
              kIs<5, CmDreq> && kIs<6, CmDrep> && kIs<7, CmSidrReq> && kIs<8, CmSidrRep>);
constexpr const char* kNames[] = {"REQ",  "MRA",  "REJ",      "REP",     "RTU",
                                  "DREQ", "DREP", "SIDR_REQ", "SIDR_REP"};
static_assert(std::size(kNames) == std::variant_size_v<CmBody>);

template <size_t... kIndices>
void ParseBody(size_t index, std::span<const std::byte, kMessageBytes> bytes, CmBody& body,
               std::index_sequence<kIndices...>) {
  const auto parse = [&]<size_t kIndex>() {
    cm_fields::Reader reader(bytes);
    cm_fields::Layout(reader, body.emplace<kIndex>());
  };
  ((index == kIndices ? parse.template operator()<kIndices>() : void()), ...);
}

}  // namespace

tl::expected<CmMessage, CmParseError> ParseCm(std::span<const std::byte> mad) {
  if (mad.size() < kMadBytes) return tl::make_unexpected(CmParseError::kTooShort);
  const auto modifier = static_cast<uint32_t>(LoadBig<4>(mad.data() + kModifierAt));
  const std::span<const std::byte> more = mad.subspan(kMadBytes);
  if (more.size() > (modifier <= kMaxMoreBytes ? modifier : 0)) {
    return tl::make_unexpected(CmParseError::kTooLong);
  }
  if (mad[kClassAt] != kCmClass) return tl::make_unexpected(CmParseError::kBadClass);
  if (mad[kBaseVersionAt] != kBaseVersion || mad[kClassVersionAt] != kCmClassVersion) {
    return tl::make_unexpected(CmParseError::kBadVersion);
  }
  if (mad[kMethodAt] != kMethodSend) return tl::make_unexpected(CmParseError::kBadMethod);
  const size_t index = LoadBig<2>(mad.data() + kAttributeAt) - kFirstAttribute;
  if (index >= std::variant_size_v<CmBody>) {  // below the first wraps to a huge index
    return tl::make_unexpected(CmParseError::kUnknownAttribute);
  }
  CmMessage message;
  message.transaction_id = LoadBig<8>(mad.data() + kTransactionAt);
  message.attribute_modifier = modifier;
  const auto* const more_bytes = reinterpret_cast<const uint8_t*>(more.data());
  message.more_private_data.assign(more_bytes, more_bytes + more.size());
  ParseBody(index, mad.subspan<kMadHeaderBytes, kMessageBytes>(), message.body,
            std::make_index_sequence<std::variant_size_v<CmBody>>());
  return message;
}

void EmitCm(const CmMessage& message, std::span<std::byte, kMadBytes> out) {
  std::fill(out.begin(), out.end(), std::byte{0});
  out[kBaseVersionAt] = kBaseVersion;
  out[kClassAt] = kCmClass;
  out[kClassVersionAt] = kCmClassVersion;
  out[kMethodAt] = kMethodSend;
  StoreBig<8>(out.data() + kTransactionAt, message.transaction_id);
  StoreBig<2>(out.data() + kAttributeAt, kFirstAttribute + message.body.index());
  StoreBig<4>(out.data() + kModifierAt, message.attribute_modifier);
  cm_fields::Writer writer(out.subspan<kMadHeaderBytes, kMessageBytes>());
  std::visit([&](const auto& body) { cm_fields::Layout(writer, body); }, message.body);
}

size_t EmitMore(const CmMessage& message, std::span<std::byte> out) {
  constexpr size_t kWord = 4;
  const std::span<const std::byte> more = std::as_bytes(std::span(message.more_private_data));
  const size_t bytes = (more.size() + kWord - 1) / kWord * kWord;
  std::fill_n(std::ranges::copy(more, out.begin()).out, bytes - more.size(), std::byte{0});
  return bytes;
}

const char* CmName(const CmBody& body) { return kNames[body.index()]; }

}  // namespace rdmaemu::wire
