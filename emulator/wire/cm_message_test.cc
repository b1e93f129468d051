#include "emulator/wire/cm_message.h"

#include <gtest/gtest.h>

#include <vector>

#include "emulator/base/random.h"

namespace rdmaemu::wire {
namespace {

using Mad = std::array<std::byte, kMadBytes>;

Mad Emit(const CmBody& body) {
  Mad mad;
  mad.fill(std::byte{0xee});  // EmitCm must overwrite all of it
  EmitCm({.transaction_id = 0x1122334455667788, .attribute_modifier = 0x99aabbcc, .body = body},
         mad);
  return mad;
}
uint8_t At(const Mad& mad, size_t message_byte) {
  return static_cast<uint8_t>(mad[24 + message_byte]);
}
template <class T>
T Again(const T& body) {
  const auto message = ParseCm(Emit(body));
  EXPECT_TRUE(message.has_value());
  EXPECT_TRUE(std::holds_alternative<T>(message->body));
  return std::get<T>(message->body);
}
// Returns the bits that are set in the message (behind the MAD header), as pairs of byte and bit
// from the most significant. The specification's tables give a field's position in this form.
std::vector<std::pair<int, int>> SetBits(const CmBody& body) {
  std::vector<std::pair<int, int>> bits;
  const Mad mad = Emit(body);
  for (int byte = 0; byte < 232; ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      if ((At(mad, static_cast<size_t>(byte)) & 0x80 >> bit) != 0) bits.push_back({byte, bit});
    }
  }
  return bits;
}
// Returns `width` bits from (byte, bit) on.
std::vector<std::pair<int, int>> Place(int byte, int bit, int width) {
  std::vector<std::pair<int, int>> bits;
  for (int i = 0; i < width; ++i) bits.push_back({byte + (bit + i) / 8, (bit + i) % 8});
  return bits;
}

CmReq ZeroReq() {
  CmReq req;
  req.pkey = 0;
  req.primary.local_lid = req.primary.remote_lid = 0;
  return req;
}

TEST(CmHeader, IsASendOfClassSevenVersionTwo) {
  const Mad mad = Emit(CmRtu{});
  const uint8_t want[24] = {1,    7,    2,    3,    0,    0,    0, 0, 0x11, 0x22, 0x33, 0x44,
                            0x55, 0x66, 0x77, 0x88, 0x00, 0x14, 0, 0, 0x99, 0xaa, 0xbb, 0xcc};
  for (size_t i = 0; i < 24; ++i) EXPECT_EQ(static_cast<uint8_t>(mad[i]), want[i]) << i;
}

TEST(CmHeader, AttributeIdsAreThoseOfTheSpecification) {
  const std::pair<CmBody, int> all[] = {{CmReq{}, 0x10},  {CmMra{}, 0x11},     {CmRej{}, 0x12},
                                        {CmRep{}, 0x13},  {CmRtu{}, 0x14},     {CmDreq{}, 0x15},
                                        {CmDrep{}, 0x16}, {CmSidrReq{}, 0x17}, {CmSidrRep{}, 0x18}};
  for (const auto& [body, attribute] : all) {
    EXPECT_EQ(static_cast<int>(Emit(body)[17]), attribute) << CmName(body);
    EXPECT_EQ(ParseCm(Emit(body))->body.index(), body.index());
  }
  EXPECT_STREQ(CmName(CmSidrRep{}), "SIDR_REP");
}

TEST(CmHeader, OtherMadsAreRefusedByName) {
  const auto error = [](size_t at, int value) {
    Mad mad = Emit(CmReq{});
    mad[at] = static_cast<std::byte>(value);
    return ParseCm(mad).error();
  };
  EXPECT_EQ(error(0, 2), CmParseError::kBadVersion);
  EXPECT_EQ(error(1, 3), CmParseError::kBadClass);
  EXPECT_EQ(error(2, 1), CmParseError::kBadVersion);
  EXPECT_EQ(error(3, 1), CmParseError::kBadMethod);
  EXPECT_EQ(error(16, 1), CmParseError::kUnknownAttribute);
  EXPECT_EQ(error(17, 0x0f), CmParseError::kUnknownAttribute);
  EXPECT_EQ(error(17, 0x19), CmParseError::kUnknownAttribute);  // LAP
  EXPECT_EQ(error(17, 0x1a), CmParseError::kUnknownAttribute);  // APR
}

// Private data of iw_cm's devices. The attribute modifier is their length.
TEST(CmHeader, WhatFollowsAMadIsMorePrivateDataWhereItIsCounted) {
  for (const size_t bytes : {1, 4, 159, 199}) {
    CmMessage message{7, static_cast<uint32_t>(57 + bytes), CmReq{},
                      std::vector<uint8_t>(bytes, 0xab)};
    std::vector<std::byte> packet(kMadBytes + kMaxMoreBytes);
    EmitCm(message, std::span(packet).first<kMadBytes>());
    packet.resize(kMadBytes + EmitMore(message, std::span(packet).subspan(kMadBytes)));
    EXPECT_EQ(packet.size() % 4, 0u);
    const auto parsed = ParseCm(packet);
    ASSERT_TRUE(parsed) << bytes;
    message.more_private_data.resize(packet.size() - kMadBytes);
    EXPECT_EQ(parsed->more_private_data, message.more_private_data);
    packet.resize(kMadBytes + message.attribute_modifier + 1);
    EXPECT_EQ(ParseCm(packet).error(), CmParseError::kTooLong);
  }
}

TEST(CmHeader, AMadHas256Bytes) {
  const Mad mad = Emit(CmReq{});
  std::vector<std::byte> longer(mad.begin(), mad.end());
  longer.push_back({});
  EXPECT_EQ(ParseCm(longer).error(), CmParseError::kTooLong);
  for (size_t size = 0; size < kMadBytes; ++size) {
    const std::vector<std::byte> cut(mad.begin(), mad.begin() + static_cast<long>(size));
    EXPECT_EQ(ParseCm(cut).error(), CmParseError::kTooShort);
  }
}

// A field with its largest value sets its bits and no others, and parses to the same value.
#define EXPECT_PLACE(zero, member, value, byte, bit, width)       \
  do {                                                            \
    auto body = zero;                                             \
    body.member = static_cast<decltype(body.member)>(value);      \
    EXPECT_EQ(SetBits(body), Place(byte, bit, width)) << #member; \
    EXPECT_EQ(Again(body).member, body.member) << #member;        \
  } while (false)

TEST(Req, EveryFieldFillsItsBitsAndNoOthers) {
  EXPECT_PLACE(ZeroReq(), local_comm_id, ~0u, 0, 0, 32);
  EXPECT_PLACE(ZeroReq(), vendor_id, 0xffffff, 5, 0, 24);
  EXPECT_PLACE(ZeroReq(), service_id, ~0ull, 8, 0, 64);
  EXPECT_PLACE(ZeroReq(), local_ca_guid, ~0ull, 16, 0, 64);
  EXPECT_PLACE(ZeroReq(), local_qkey, ~0u, 28, 0, 32);
  EXPECT_PLACE(ZeroReq(), local_qpn, 0xffffff, 32, 0, 24);
  EXPECT_PLACE(ZeroReq(), responder_resources, 255, 35, 0, 8);
  EXPECT_PLACE(ZeroReq(), initiator_depth, 255, 39, 0, 8);
  EXPECT_PLACE(ZeroReq(), remote_cm_response_timeout, 31, 43, 0, 5);
  EXPECT_PLACE(ZeroReq(), transport, 3, 43, 5, 2);
  EXPECT_PLACE(ZeroReq(), end_to_end_flow_control, true, 43, 7, 1);
  EXPECT_PLACE(ZeroReq(), starting_psn, 0xffffff, 44, 0, 24);
  EXPECT_PLACE(ZeroReq(), local_cm_response_timeout, 31, 47, 0, 5);
  EXPECT_PLACE(ZeroReq(), retry_count, 7, 47, 5, 3);
  EXPECT_PLACE(ZeroReq(), pkey, 0xffff, 48, 0, 16);
  EXPECT_PLACE(ZeroReq(), path_mtu, 15, 50, 0, 4);
  EXPECT_PLACE(ZeroReq(), rdc_exists, true, 50, 4, 1);
  EXPECT_PLACE(ZeroReq(), rnr_retry_count, 7, 50, 5, 3);
  EXPECT_PLACE(ZeroReq(), max_cm_retries, 15, 51, 0, 4);
  EXPECT_PLACE(ZeroReq(), srq, true, 51, 4, 1);
  EXPECT_PLACE(ZeroReq(), extended_transport, 7, 51, 5, 3);
}

TEST(Req, BothPathsHaveTheirFieldsInPlace) {
  const NetAddress ones = *NetAddress::Parse("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
#define EXPECT_PATH(path, base)                                        \
  EXPECT_PLACE(ZeroReq(), path.local_lid, 0xffff, base, 0, 16);        \
  EXPECT_PLACE(ZeroReq(), path.remote_lid, 0xffff, base + 2, 0, 16);   \
  EXPECT_PLACE(ZeroReq(), path.local_gid, ones, base + 4, 0, 128);     \
  EXPECT_PLACE(ZeroReq(), path.remote_gid, ones, base + 20, 0, 128);   \
  EXPECT_PLACE(ZeroReq(), path.flow_label, 0xfffff, base + 36, 0, 20); \
  EXPECT_PLACE(ZeroReq(), path.packet_rate, 63, base + 39, 2, 6);      \
  EXPECT_PLACE(ZeroReq(), path.traffic_class, 255, base + 40, 0, 8);   \
  EXPECT_PLACE(ZeroReq(), path.hop_limit, 255, base + 41, 0, 8);       \
  EXPECT_PLACE(ZeroReq(), path.service_level, 15, base + 42, 0, 4);    \
  EXPECT_PLACE(ZeroReq(), path.subnet_local, true, base + 42, 4, 1);   \
  EXPECT_PLACE(ZeroReq(), path.local_ack_timeout, 31, base + 43, 0, 5)
  EXPECT_PATH(primary, 52);
  EXPECT_PATH(alternate, 96);
#undef EXPECT_PATH
}

TEST(Req, OffersNoAlternatePathUnlessToldTo) {
  EXPECT_EQ(CmReq{}.alternate.local_lid, 0);
  EXPECT_EQ(CmReq{}.primary.local_lid, 0xffff);
}

TEST(Mra, EveryFieldFillsItsBitsAndNoOthers) {
  EXPECT_PLACE(CmMra{}, local_comm_id, ~0u, 0, 0, 32);
  EXPECT_PLACE(CmMra{}, remote_comm_id, ~0u, 4, 0, 32);
  EXPECT_PLACE(CmMra{}, message, 3, 8, 0, 2);
  EXPECT_PLACE(CmMra{}, service_timeout, 31, 9, 0, 5);
}

TEST(Rej, EveryFieldFillsItsBitsAndNoOthers) {
  EXPECT_PLACE(CmRej{}, local_comm_id, ~0u, 0, 0, 32);
  EXPECT_PLACE(CmRej{}, remote_comm_id, ~0u, 4, 0, 32);
  EXPECT_PLACE(CmRej{}, message, 3, 8, 0, 2);
  EXPECT_PLACE(CmRej{}, additional_info_bytes, 127, 9, 0, 7);
  EXPECT_PLACE(CmRej{}, reason, 0xffff, 10, 0, 16);
}

TEST(Rep, EveryFieldFillsItsBitsAndNoOthers) {
  EXPECT_PLACE(CmRep{}, local_comm_id, ~0u, 0, 0, 32);
  EXPECT_PLACE(CmRep{}, remote_comm_id, ~0u, 4, 0, 32);
  EXPECT_PLACE(CmRep{}, local_qkey, ~0u, 8, 0, 32);
  EXPECT_PLACE(CmRep{}, local_qpn, 0xffffff, 12, 0, 24);
  EXPECT_PLACE(CmRep{}, vendor_id, 0xff0000, 15, 0, 8);
  EXPECT_PLACE(CmRep{}, local_eecn, 0xffffff, 16, 0, 24);
  EXPECT_PLACE(CmRep{}, vendor_id, 0x00ff00, 19, 0, 8);
  EXPECT_PLACE(CmRep{}, starting_psn, 0xffffff, 20, 0, 24);
  EXPECT_PLACE(CmRep{}, vendor_id, 0x0000ff, 23, 0, 8);
  EXPECT_PLACE(CmRep{}, responder_resources, 255, 24, 0, 8);
  EXPECT_PLACE(CmRep{}, initiator_depth, 255, 25, 0, 8);
  EXPECT_PLACE(CmRep{}, target_ack_delay, 31, 26, 0, 5);
  EXPECT_PLACE(CmRep{}, failover_accepted, 3, 26, 5, 2);
  EXPECT_PLACE(CmRep{}, end_to_end_flow_control, true, 26, 7, 1);
  EXPECT_PLACE(CmRep{}, rnr_retry_count, 7, 27, 0, 3);
  EXPECT_PLACE(CmRep{}, srq, true, 27, 3, 1);
  EXPECT_PLACE(CmRep{}, local_ca_guid, ~0ull, 28, 0, 64);
}

TEST(RtuDreqDrep, EveryFieldFillsItsBitsAndNoOthers) {
  EXPECT_PLACE(CmRtu{}, local_comm_id, ~0u, 0, 0, 32);
  EXPECT_PLACE(CmRtu{}, remote_comm_id, ~0u, 4, 0, 32);
  EXPECT_PLACE(CmDreq{}, local_comm_id, ~0u, 0, 0, 32);
  EXPECT_PLACE(CmDreq{}, remote_comm_id, ~0u, 4, 0, 32);
  EXPECT_PLACE(CmDreq{}, remote_qpn, 0xffffff, 8, 0, 24);
  EXPECT_PLACE(CmDrep{}, local_comm_id, ~0u, 0, 0, 32);
  EXPECT_PLACE(CmDrep{}, remote_comm_id, ~0u, 4, 0, 32);
}

TEST(Sidr, EveryFieldFillsItsBitsAndNoOthers) {
  CmSidrReq request;
  request.pkey = 0;
  EXPECT_PLACE(request, request_id, ~0u, 0, 0, 32);
  EXPECT_PLACE(request, pkey, 0xffff, 4, 0, 16);
  EXPECT_PLACE(request, service_id, ~0ull, 8, 0, 64);
  EXPECT_PLACE(CmSidrRep{}, request_id, ~0u, 0, 0, 32);
  EXPECT_PLACE(CmSidrRep{}, status, 255, 4, 0, 8);
  EXPECT_PLACE(CmSidrRep{}, additional_info_bytes, 255, 5, 0, 8);
  EXPECT_PLACE(CmSidrRep{}, vendor_id, 0xffff00, 6, 0, 16);
  EXPECT_PLACE(CmSidrRep{}, qpn, 0xffffff, 8, 0, 24);
  EXPECT_PLACE(CmSidrRep{}, vendor_id, 0x0000ff, 11, 0, 8);
  EXPECT_PLACE(CmSidrRep{}, service_id, ~0ull, 12, 0, 64);
  EXPECT_PLACE(CmSidrRep{}, qkey, ~0u, 20, 0, 32);
}

// Private data and additional information begin at their offsets, and end inside the MAD.
template <class T, size_t N>
void ExpectBytes(std::array<uint8_t, N> T::*member, size_t offset) {
  T body{};
  for (size_t i = 0; i < N; ++i) (body.*member)[i] = static_cast<uint8_t>(i + 1);
  const Mad mad = Emit(body);
  for (size_t i = 0; i < N; ++i) ASSERT_EQ(At(mad, offset + i), static_cast<uint8_t>(i + 1));
  EXPECT_EQ(Again(body).*member, body.*member);
}
TEST(PrivateData, StandsWhereEachMessageHasIt) {
  ExpectBytes(&CmReq::private_data, 140);
  ExpectBytes(&CmMra::private_data, 10);
  ExpectBytes(&CmRej::additional_info, 12);
  ExpectBytes(&CmRej::private_data, 84);
  ExpectBytes(&CmRep::private_data, 36);
  ExpectBytes(&CmRtu::private_data, 8);
  ExpectBytes(&CmDreq::private_data, 12);
  ExpectBytes(&CmDrep::private_data, 8);
  ExpectBytes(&CmSidrReq::private_data, 16);
  ExpectBytes(&CmSidrRep::additional_info, 24);
  ExpectBytes(&CmSidrRep::private_data, 96);
}

TEST(CmFields, WhatIsWiderThanItsFieldIsCutNotSpilled) {
  CmReq req = ZeroReq();
  req.retry_count = 0xf8 | 5;
  EXPECT_EQ(Again(req).retry_count, 5);
  EXPECT_EQ(Again(req).local_cm_response_timeout, 0);
}

TEST(RdmaCmHeader, KeepsAnIpv4AddressInTheLastFourOfSixteenBytes) {
  const RdmaCmHeader header{.ip_version = 4,
                            .source_port = 0x1234,
                            .source = NetAddress::Ipv4(0x0a000001),
                            .destination = NetAddress::Ipv4(0x0a000002)};
  PrivateData<92> data;
  data.fill(0xee);
  EmitRdmaCmHeader(header, data);
  const uint8_t want[37] = {0, 0x40, 0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  0, 0, 10, 0,   0,
                            1, 0,    0,    0,    0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2,  0xee};
  for (size_t i = 0; i < sizeof want; ++i) EXPECT_EQ(data[i], want[i]) << i;
  const auto again = ParseRdmaCmHeader(data);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->ip_version, 4);
  EXPECT_EQ(again->source_port, 0x1234);
  EXPECT_EQ(again->source, header.source);
  EXPECT_EQ(again->destination, header.destination);
}

TEST(RdmaCmHeader, CarriesIpv6) {
  const RdmaCmHeader header{.ip_version = 6,
                            .source_port = 1,
                            .source = *NetAddress::Parse("fd00::1"),
                            .destination = *NetAddress::Parse("fd00::2")};
  PrivateData<92> data{};
  EmitRdmaCmHeader(header, data);
  const auto again = ParseRdmaCmHeader(data);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->source, header.source);
  EXPECT_EQ(again->destination, header.destination);
}

TEST(RdmaCmHeader, RefusesVersionsThatRdmaCmDoesNotSpeak) {
  PrivateData<92> data{};
  data[1] = 0x40;
  EXPECT_TRUE(ParseRdmaCmHeader(data));
  EXPECT_FALSE(ParseRdmaCmHeader(std::span(data).first(35)));
  data[1] = 0x50;
  EXPECT_FALSE(ParseRdmaCmHeader(data));
  data[1] = 0x40;
  data[0] = 1;
  EXPECT_FALSE(ParseRdmaCmHeader(data));
}

}  // namespace
}  // namespace rdmaemu::wire
