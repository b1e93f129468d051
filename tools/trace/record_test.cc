#include "tools/trace/record.h"

#include "tools/trace/traces_for_test.h"

namespace rdmaemu::trace_tools {
namespace {

constexpr const char* kHostStart =
    R"({"time":5.000000001,"host":"a","process":0,"kind":"host","object":"","what":"START")";

std::string ErrorOf(const std::string& text) {
  Trace trace;
  const auto read = ReadTrace("t.jsonl", text, trace);
  return read ? "" : read.error();
}

TEST(RecordTest, ARecordHasItsKeysAndTheExactTime) {
  Trace trace;
  ReadInto(trace,
           R"({"time":1700000000.123456789,"took_ns":42,"process":7,"thread":2,"kind":"call",)"
           R"("what":"reg_mr","object":"pd1","arguments":{"length":4096},"result":"mr1"})"
           "\n");
  ASSERT_EQ(trace.records.size(), 1u);
  const Record& record = trace.records[0];
  EXPECT_EQ(record.time_ns, 1700000000123456789);
  EXPECT_EQ(BeginOf(record), 1700000000123456747);
  EXPECT_EQ(record.process, 7);
  EXPECT_EQ(record.thread, 2);
  EXPECT_EQ(record.kind + record.what + record.object, "callreg_mrpd1");
  EXPECT_EQ(FieldsOf(record)["arguments"]["length"], 4096);
  EXPECT_FALSE(trace.of_host);
}

TEST(RecordTest, ATimeThatDoesNotComeFirstIsReadToo) {
  Trace trace;
  ReadInto(trace, "{\"process\":1,\"kind\":\"end\",\"time\":2.5}\n");
  EXPECT_EQ(trace.records[0].time_ns, 2500000000);
}

TEST(RecordTest, BadLinesNameFileLineAndReason) {
  const std::string good = "{\"time\":1.0,\"process\":1,\"kind\":\"end\"}\n";
  EXPECT_EQ(ErrorOf(good + "junk\n"),
            "t.jsonl:2: not a record of a trace: the line is not a JSON object");
  EXPECT_EQ(ErrorOf(good + good + "[1]\n"),
            "t.jsonl:3: not a record of a trace: the line is not a JSON object");
  EXPECT_EQ(ErrorOf("\n"), "t.jsonl:1: not a record of a trace: the line is not a JSON object");
  EXPECT_EQ(ErrorOf("{\"time\":1.0,\"process\":1}\n"),
            "t.jsonl:1: not a record of a trace: the line has no key \"kind\"");
  for (const char* value :
       {R"("time":"now","process":1,"kind":"x")", R"("time":1e300,"process":1,"kind":"x")",
        R"("time":99999999999.0,"process":1,"kind":"x")", R"("time":1.0,"process":-1,"kind":"x")",
        R"("time":1.0,"process":18446744073709551615,"kind":"x")",
        R"("time":1.0,"process":1,"kind":7)", R"("time":1.0,"process":1,"kind":"")",
        R"("time":1.0,"process":1,"kind":"x","thread":"one")",
        R"("time":1.0,"process":1,"kind":"x","took_ns":1.5)"}) {
    EXPECT_NE(ErrorOf("{" + std::string(value) + "}\n").find("that cannot be"), std::string::npos)
        << value;
  }
}

TEST(RecordTest, DeepAndLongLinesAreRefused) {
  const std::string start = "{\"time\":1.0,\"process\":1,\"kind\":\"x\",\"a\":";
  // The record itself is one level.
  const auto nested = [&](size_t depth) {
    return start + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}\n";
  };
  EXPECT_EQ(ErrorOf(nested(kMaxNesting)), "");
  EXPECT_NE(ErrorOf(nested(kMaxNesting + 1)).find("more than 32 arrays"), std::string::npos);
  EXPECT_NE(ErrorOf(nested(500'000)).find("more than 32 arrays"), std::string::npos);
  const auto filled = [&](size_t length) {
    return start + "\"" + std::string(length - start.size() - 3, '[') + "\"}\n";
  };
  EXPECT_EQ(ErrorOf(filled(kMaxLineBytes)), "");
  EXPECT_NE(ErrorOf(filled(kMaxLineBytes + 1)).find("longer than 1 MiB"), std::string::npos);
}

TEST(RecordTest, ALastLineThatWasCutIsLeftOut) {
  Trace trace;
  ReadInto(trace, "{\"time\":1.0,\"process\":1,\"kind\":\"end\"}\n{\"time\":2.0,\"pro");
  EXPECT_EQ(trace.records.size(), 1u);
  EXPECT_TRUE(trace.is_cut);
  Trace whole;
  ReadInto(whole, "{\"time\":1.0,\"process\":1,\"kind\":\"end\"}");
  EXPECT_EQ(whole.records.size(), 1u);
  EXPECT_FALSE(whole.is_cut);
}

TEST(RecordTest, AHostsTimesCountFrom1970WhereItsClockIsTheMachines) {
  Trace trace;
  ReadInto(trace, std::string(kHostStart) + R"(,"time_0":"1700000000.500000000"})" + "\n");
  EXPECT_TRUE(trace.of_host);
  EXPECT_FALSE(trace.has_own_clock);
  EXPECT_EQ(trace.records[0].time_ns, 1700000005500000001);
  Trace own;
  ReadInto(own, std::string(kHostStart) + "}\n");
  EXPECT_TRUE(own.has_own_clock);
  EXPECT_EQ(own.records[0].time_ns, 5000000001);
}

}  // namespace
}  // namespace rdmaemu::trace_tools
