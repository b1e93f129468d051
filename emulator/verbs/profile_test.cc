#include "emulator/verbs/profile.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

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
  EXPECT_EQ(BuiltInProfileNames(), "minimal, mlx5-ib, mlx5-roce, rxe-6.12, rxe, siw");
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

TEST(Profile, Rxe612HasTheLimitsOfItsSource) {
  const Profile& rxe = *BuiltInProfile("rxe-6.12");
  EXPECT_EQ(rxe.port.max_msg_sz, 0x80000000u);
  EXPECT_EQ(rxe.most_message_bytes(), UINT32_MAX) << "the sender checks no length";
  EXPECT_EQ(rxe.most_request_bytes(), 0x80000000u);
  EXPECT_EQ(rxe.cm.packet_lifetime, 16);
  EXPECT_EQ(rxe.device_prefix, "rxe");
  EXPECT_EQ(rxe.node_desc, "rxe");
  EXPECT_FALSE(rxe.reregisters_regions);
  EXPECT_EQ(BuiltInProfile("rxe")->most_request_bytes(), UINT32_MAX);
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

// ---- bases

// Finds profiles in `texts` by their names.
FindProfileText In(std::map<std::string, std::string> texts) {
  return [texts = std::move(texts)](const std::string& base,
                                    const std::string&) -> tl::expected<ProfileText, std::string> {
    if (!texts.contains(base)) return BuiltInProfileText(base);
    return ProfileText{base, texts.at(base)};
  };
}

TEST(ProfileBase, GivesEveryKeyThatTheProfileLacks) {
  const auto mine = ParseProfile(
      "name = \"mine\"\nbase = \"other\"\n[device]\nmax_qp = 7\n", "mine.toml",
      In({{"other", "name = \"other\"\nbase = \"siw\"\n[device]\nmax_qp = 8\nmax_cq = 9\n"}}));
  ASSERT_TRUE(mine) << mine.error();
  EXPECT_EQ(mine->name, "mine");
  EXPECT_EQ(mine->device.orig_attr.max_qp, 7);
  EXPECT_EQ(mine->device.orig_attr.max_cq, 9);
  EXPECT_EQ(mine->device.orig_attr.max_sge, 6);  // siw's
  EXPECT_EQ(mine->cm.manager, ConnectionManager::kIwarp);
  EXPECT_EQ(mine->node_desc, "Software iWARP stack");
}

TEST(ProfileBase, DoesNotGiveItsNameAndTheDescriptionOfItsName) {
  const auto unnamed = ParseProfile("base = \"rxe\"", "mine.toml");
  ASSERT_FALSE(unnamed);
  EXPECT_EQ(unnamed.error(), "mine.toml:1:1: name is missing: a string");
  EXPECT_EQ(ParseProfile("name = \"mine\"\nbase = \"rxe\"", "mine.toml")->node_desc, "mine");
}

TEST(ProfileBase, KeepsTheErrorsOfKeys) {
  const std::string head = "name = \"mine\"\nbase = \"rxe\"\n";
  const auto error = [&](const std::string& rest) {
    const auto parsed = ParseProfile(head + rest, "mine.toml");
    return parsed ? "" : parsed.error();
  };
  EXPECT_EQ(error("[device]\nmax_queues = 1"),
            "mine.toml:4:14: device.max_queues is not a key of a profile");
  EXPECT_EQ(error("colour = 1"), "mine.toml:3:10: colour is not a key of a profile");
  EXPECT_EQ(error("[top]\nname = \"x\""), "mine.toml:3:1: top is not a key of a profile");
  EXPECT_EQ(error("[device]\nmax_sge = 33"),
            "mine.toml:4:11: device.max_sge must be an integer from 1 to 32");
  EXPECT_EQ(error("habits = 1"), "mine.toml:3:10: habits must be a table");
}

TEST(ProfileBase, ErrorsOfABaseNameTheBase) {
  const auto parsed = ParseProfile("name = \"mine\"\nbase = \"bad\"", "mine.toml",
                                   In({{"bad", "name = \"bad\"\nbase = \"rxe\"\nrc = 1"}}));
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error(), "bad:3:6: rc must be a table");
}

TEST(ProfileBase, ThatDoesNotExistIsAnErrorWithTheOnesThatDo) {
  const auto parsed = ParseProfile("name = \"mine\"\nbase = \"mlx9\"", "mine.toml");
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error(),
            "mine.toml:2:8: base cannot be used: there is no device profile \"mlx9\"; "
            "choose one of: " +
                BuiltInProfileNames() + "; or name a file, as in ./my-nic.toml");
}

TEST(ProfileBase, ThatLeadsBackToTheProfileIsAnError) {
  const auto find = In({{"a", "name = \"a\"\nbase = \"b\""}, {"b", "name = \"b\"\nbase = \"a\""}});
  const auto parsed = ParseProfile("name = \"mine\"\nbase = \"a\"", "mine.toml", find);
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error(), "b:2:8: base contains itself: mine.toml -> a -> b -> a");
}

TEST(ProfileBase, IsAtMostEightProfilesAway) {
  // Profile n has n bases.
  std::map<std::string, std::string> chain;
  for (size_t bases = 1; bases <= kMaxProfileBases + 1; bases++) {
    const std::string base = bases == 1 ? "rxe" : std::to_string(bases - 1);
    chain[std::to_string(bases)] = "name = \"n\"\nbase = \"" + base + "\"";
  }
  const auto with = [&](size_t bases) {
    return ParseProfile(chain[std::to_string(bases)], "mine.toml", In(chain));
  };
  EXPECT_TRUE(with(kMaxProfileBases));
  const auto parsed = with(kMaxProfileBases + 1);
  ASSERT_FALSE(parsed);
  EXPECT_NE(parsed.error().find("base is one base too many: a profile has at most 8 bases"),
            std::string::npos)
      << parsed.error();
}

TEST(ProfileToml, OfEveryBuiltInProfileGivesTheSameProfile) {
  for (const EmbeddedProfile& embedded : EmbeddedProfiles()) {
    const auto built_in = ParseProfile(embedded.toml, embedded.file_name);
    ASSERT_TRUE(built_in) << built_in.error();
    const std::string toml = ProfileToml(*built_in);
    EXPECT_LE(toml.size(), kMaxProfileBytes);
    const auto again = ParseProfile(toml, "again.toml");
    ASSERT_TRUE(again) << again.error();
    EXPECT_EQ(ProfileToml(*again), toml);
    EXPECT_EQ(std::memcmp(&again->device, &built_in->device, sizeof built_in->device), 0);
    EXPECT_EQ(again->pkeys, built_in->pkeys);
    EXPECT_EQ(again->cm.connect_timeout, built_in->cm.connect_timeout);
  }
}

TEST(ProfileToml, KeepsEveryKindOfText) {
  const auto mine = ParseProfile(
      "name = \"a\\\"b\\\\c\\u0001\\u007f\"\nbase = \"rxe\"\n[port]\npkey_tbl_len = 3\npkeys = [1, "
      "65535]",
      "mine.toml");
  ASSERT_TRUE(mine) << mine.error();
  const auto again = ParseProfile(ProfileToml(*mine), "again.toml");
  ASSERT_TRUE(again) << again.error();
  EXPECT_EQ(again->name, mine->name);
  EXPECT_EQ(again->pkeys, (std::vector<uint16_t>{1, 65535, 0}));
}

}  // namespace
}  // namespace rdmaemu
