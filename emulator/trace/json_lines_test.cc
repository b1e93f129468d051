#include "emulator/trace/json_lines.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace rdmaemu::trace {
namespace {

Record Example() {
  return {.time = Time(Duration(1'000'000'042)),
          .process = ProcessId(7),
          .kind = "cm.send",
          .object = "id 3",
          .what = "REQ",
          .fields = {{"count", int64_t{-5}},
                     {"guid", uint64_t{0xffffffffffffffff}},
                     {"peer", std::string("127.0.1.2")}}};
}

TEST(JsonLines, WritesOneLineWithTheKeysInTheirOrder) {
  std::string out;
  JsonLines("a").Append(Example(), out);
  EXPECT_EQ(out,
            "{\"time\":1.000000042,\"host\":\"a\",\"process\":7,\"kind\":\"cm.send\","
            "\"object\":\"id 3\",\"what\":\"REQ\",\"count\":-5,\"guid\":18446744073709551615,"
            "\"peer\":\"127.0.1.2\"}\n");
}

TEST(JsonLines, EscapesQuotesControlsAndBrokenUtf8) {
  Record record = Example();
  record.what = "say \"no\"\n\x01\\";
  record.object = "\xff\xfe";
  std::string out;
  JsonLines("h\"ost").Append(record, out);
  EXPECT_EQ(out.find('\n'), out.size() - 1);
  const auto parsed = nlohmann::json::parse(out);
  EXPECT_EQ(parsed["what"], record.what);
  EXPECT_EQ(parsed["host"], "h\"ost");
  EXPECT_EQ(parsed["object"], "\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(JsonLines, AFieldNeverHidesTheRecordsOwnKeys) {
  Record record = Example();
  record.fields = {{"process", uint64_t{1}}};
  std::string out;
  JsonLines("a").Append(record, out);
  const auto parsed = nlohmann::json::parse(out);
  EXPECT_EQ(parsed["process"], 7);
  EXPECT_EQ(parsed["field.process"], 1);
}

TEST(JsonLines, WritesTimesBeforeZeroToTheNanosecond) {
  Record record = Example();
  record.time = Time(Duration(-1));
  std::string out;
  JsonLines("a").Append(record, out);
  EXPECT_EQ(out.substr(0, 21), "{\"time\":-0.000000001,");
}

}  // namespace
}  // namespace rdmaemu::trace
