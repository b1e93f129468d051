#include "tools/trace/show.h"

#include "tools/trace/traces_for_test.h"

namespace rdmaemu::trace_tools {
namespace {

std::string LineOf(const std::string& text) {
  Trace trace;
  ReadInto(trace, text);
  std::string line;
  AppendLine(trace.records[0], trace.records[0].time_ns - 1'500'000'000, line);
  return line;
}

TEST(ShowTest, ACallHasItsArgumentsItsResultAndItsTime) {
  EXPECT_EQ(LineOf(TraceText()
                       .Thread(2)
                       .Took(1'234'567)
                       .Failed("reg_mr", "pd1", "ENOMEM",
                               R"({"pd":"pd1","access":["LOCAL_WRITE"],)"
                               R"("attr":{"length":4096}})")
                       .text()),
            "  1.500000000  100/2      call        pd1        "
            "reg_mr(pd=pd1, access=[LOCAL_WRITE], attr={length=4096}) = -1 ENOMEM  [1.23 ms]\n");
}

TEST(ShowTest, OtherKeysAndInjectionsAreShown) {
  EXPECT_EQ(LineOf(TraceText()
                       .Add("event", "REJECTED", "id1", R"({"status":28})",
                            R"("bytes":3,"injected":"rule 1")")
                       .text()),
            "  1.500000000  100        event       id1        "
            "REJECTED(status=28)  bytes=3  [injected by rule 1]\n");
}

TEST(ShowTest, AHostsRecordHasTheHostAndTheClient) {
  EXPECT_EQ(LineOf(R"({"time":2.0,"host":"a","process":3,"kind":"call","object":"id 3",)"
                   R"("what":"listen","errno":0,"backlog":8})"),
            "  1.500000000  a p3       call        id 3       listen  errno=0  backlog=8\n");
}

TEST(ShowTest, ARecordStaysOnOneLineAndCannotControlATerminal) {
  const std::string line = LineOf(R"({"time":2.0,"process":3,"kind":"a\u001b","what":"x\ny",)"
                                  R"("object":"\u0007"})");
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_EQ(line.find('\x1b'), std::string::npos);
  EXPECT_EQ(line.find('\x07'), std::string::npos);
}

TEST(ShowTest, DurationsHaveThreeDigitsAndAUnit) {
  EXPECT_EQ(ShortDuration(0), "0 ns");
  EXPECT_EQ(ShortDuration(999), "999 ns");
  EXPECT_EQ(ShortDuration(1000), "1 us");
  EXPECT_EQ(ShortDuration(999'499), "999 us");
  EXPECT_EQ(ShortDuration(999'600), "1 ms");
  EXPECT_EQ(ShortDuration(12'345'678), "12.3 ms");
  EXPECT_EQ(ShortDuration(5'000'000'000), "5 s");
  EXPECT_EQ(ShortDuration(4'000'000'000'000), "4000 s");
}

}  // namespace
}  // namespace rdmaemu::trace_tools
