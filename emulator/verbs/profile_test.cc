#include "emulator/verbs/profile.h"

#include <gtest/gtest.h>

#include "emulator/verbs/built_in_profiles.h"

namespace rdmaemu {
namespace {

std::string Rxe() {
  for (const EmbeddedProfile& embedded : EmbeddedProfiles()) {
    if (embedded.file_name == "rxe.toml") return std::string(embedded.toml);
  }
  return "";
}

std::string ErrorAfter(const std::string& from, const std::string& to) {
  std::string text = Rxe();
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  const auto parsed = ParseProfile(text, "mine.toml");
  return parsed ? "" : parsed.error();
}

TEST(Profile, EveryBuiltInOneParsesAndIsFoundByItsFileName) {
  for (const EmbeddedProfile& embedded : EmbeddedProfiles()) {
    const auto parsed = ParseProfile(embedded.toml, embedded.file_name);
    ASSERT_TRUE(parsed) << parsed.error();
    EXPECT_EQ(parsed->name + ".toml", embedded.file_name);
    EXPECT_NE(BuiltInProfile(parsed->name), nullptr);
  }
  EXPECT_EQ(BuiltInProfile("mlx9"), nullptr);
  EXPECT_EQ(BuiltInProfileNames(), "rxe, siw");
}

TEST(Profile, RxeHasWhatWasMeasured) {
  const Profile& rxe = *BuiltInProfile("rxe");
  EXPECT_EQ(rxe.device.orig_attr.max_mr_size, UINT64_MAX);
  EXPECT_EQ(rxe.device.orig_attr.device_cap_flags, 0x01223c76u);
  EXPECT_EQ(rxe.device.device_cap_flags_ex, 0x01223c76u);
  EXPECT_STREQ(rxe.device.orig_attr.fw_ver, "0.0.0");
  EXPECT_EQ(rxe.port.max_mtu, IBV_MTU_4096);
  EXPECT_EQ(rxe.port.max_msg_sz, 0x800000u);
  EXPECT_EQ(rxe.cm.packet_lifetime, 18);
}

TEST(Profile, ErrorsNameThePlaceAndWhatWouldBeRight) {
  EXPECT_EQ(ErrorAfter("max_cqe = 32767", "max_cqe = \"many\"").substr(0, 13), "mine.toml:22:");
  EXPECT_NE(ErrorAfter("max_cqe = 32767", "max_cqe = \"many\"").find("device.max_cqe must be"),
            std::string::npos);
  EXPECT_NE(ErrorAfter("max_cqe = 32767", "").find("device.max_cqe is missing"), std::string::npos);
  EXPECT_NE(ErrorAfter("max_cqe = 32767", "max_cqe = 32767\nmax_cq_e = 1").find("not a key"),
            std::string::npos);
  EXPECT_NE(ErrorAfter("\"hca\"", "\"all\"").find("\"global\", \"hca\", \"none\""),
            std::string::npos);
  EXPECT_NE(ErrorAfter("[port]", "[port").find("mine.toml:"), std::string::npos);
}

// With assertions on, as in sanitizer builds, toml++ aborted the program for this input.
TEST(Profile, ATableThatBeginsAsNoKeyDoesIsAnError) {
  EXPECT_NE(ErrorAfter("[port]", "[, port]").find("mine.toml:"), std::string::npos);
}

TEST(Profile, IsAscii) {
  const std::string error = ErrorAfter("max_cqe = 32767", "max_cqe = 32767 \xc3\xa9");
  EXPECT_EQ(error.substr(0, 16), "mine.toml:22:17:");
  EXPECT_NE(error.find("ASCII"), std::string::npos);
}

TEST(Profile, MayNotPromiseMoreSgesThanAReceiveHasRoomFor) {
  EXPECT_NE(ErrorAfter("max_sge = 32", "max_sge = 33").find("from 1 to 32"), std::string::npos);
}

}  // namespace
}  // namespace rdmaemu
