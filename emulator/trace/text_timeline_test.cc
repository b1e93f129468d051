#include "emulator/trace/text_timeline.h"

#include <gtest/gtest.h>

namespace rdmaemu::trace {
namespace {

TEST(TextTimeline, PrintsTimeSinceTheOriginAndTheFieldsInColumns) {
  const Record record{.time = Time(Duration(3'500'000'000)),
                      .process = ProcessId(7),
                      .kind = "cm.send",
                      .object = "id 3",
                      .what = "REQ",
                      .fields = {{"service_port", uint64_t{7471}}}};
  std::string out;
  TextTimeline("a", Time(Duration(1'000'000'000))).Append(record, out);
  EXPECT_EQ(
      out, "    2.500000000  a         p7     cm.send      id 3          REQ  service_port=7471\n");
}

TEST(TextTimeline, TextFromOutsideCannotBreakTheLineOrSteerTheTerminal) {
  const Record record{.time = {},
                      .process = ProcessId::kNone,
                      .kind = "call",
                      .object = "a\nb",
                      .what = "\x1b[2J",
                      .fields = {{"name", std::string("x\ry")}}};
  std::string out;
  TextTimeline("a").Append(record, out);
  EXPECT_EQ(out, "    0.000000000  a         -      call         a?b           ?[2J  name=x?y\n");
}

}  // namespace
}  // namespace rdmaemu::trace
