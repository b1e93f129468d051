#include "tools/trace/select.h"

#include "tools/trace/traces_for_test.h"

namespace rdmaemu::trace_tools {
namespace {

// Returns the names of the records, each followed by a blank.
std::string Names(const std::vector<Record>& records) {
  std::string names;
  for (const Record& record : records) names += record.what + " ";
  return names;
}

class SelectTest : public testing::Test {
 protected:
  void SetUp() override {
    TraceText text;
    text.Call("alloc_pd", "context1", "{}", "\"pd1\"")
        .Call("create_qp", "pd1", "{}", "\"qp1\"")
        .Process(200)
        .Call("modify_qp", "qp1", "{}")
        .Call("modify_qp", "qp11", "{}")
        .Call("reg_mr", "pd1", R"({"key":"qp1.qp_num"})")
        .Add("completion", "SUCCESS", "cq1", R"({"opcode":"qp"})");
    ReadInto(trace_, text.text());
    merged_ = Merge({&trace_});
  }
  std::string Select(const Selection& selection) {
    return Names(trace_tools::Select(merged_, selection));
  }

  Trace trace_;
  std::vector<Record> merged_;
};

TEST_F(SelectTest, AnObjectSelectsWhatIsAboutIt) {
  EXPECT_EQ(Select({.objects = {"qp1"}}), "create_qp modify_qp reg_mr ");
  EXPECT_EQ(Select({.objects = {"qp11"}}), "modify_qp ");
  EXPECT_EQ(Select({.objects = {"qp7"}}), "");
}

TEST_F(SelectTest, AKindOfObjectSelectsAllOfIt) {
  EXPECT_EQ(Select({.objects = {"qp"}}), "create_qp modify_qp modify_qp reg_mr ");
  EXPECT_EQ(Select({.objects = {"qp", "cq1"}}), "create_qp modify_qp modify_qp reg_mr SUCCESS ");
  EXPECT_EQ(Select({.objects = {""}}), "");
}

TEST_F(SelectTest, KindNameAndProcessSelect) {
  EXPECT_EQ(Select({.kinds = {"completion"}}), "SUCCESS ");
  EXPECT_EQ(Select({.whats = {"modify_qp"}}), "modify_qp modify_qp ");
  EXPECT_EQ(Select({.processes = {"100"}}), "alloc_pd create_qp ");
  EXPECT_EQ(Select({.whats = {"modify_qp"}, .processes = {"100"}}), "");
}

TEST_F(SelectTest, TimesCountFromTheFirstRecordAndAreInclusive) {
  EXPECT_EQ(Select({.from_ns = 4000}), "reg_mr SUCCESS ");
  EXPECT_EQ(Select({.to_ns = 1000}), "alloc_pd create_qp ");
  EXPECT_EQ(Select({.from_ns = 1000, .to_ns = 1000}), "create_qp ");
}

TEST_F(SelectTest, AHostsObjectsAndNameSelect) {
  Trace host;
  ReadInto(host,
           R"({"time":1.0,"host":"a","process":3,"kind":"cm.send","object":"id 3","what":"REQ"})"
           "\n");
  const auto merged = Merge({&host});
  EXPECT_EQ(trace_tools::Select(merged, {.objects = {"id 3"}}).size(), 1u);
  EXPECT_EQ(trace_tools::Select(merged, {.objects = {"id"}}).size(), 1u);
  EXPECT_EQ(trace_tools::Select(merged, {.objects = {"id3"}}).size(), 0u);
  EXPECT_EQ(trace_tools::Select(merged, {.processes = {"a"}}).size(), 1u);
  EXPECT_EQ(trace_tools::Select(merged, {.processes = {"b"}}).size(), 0u);
}

TEST(MergeTest, RecordsOfSeveralFilesStandByTime) {
  Trace one, other;
  const auto line = [](const char* time, const char* what) {
    return "{\"time\":" + std::string(time) + ",\"process\":1,\"kind\":\"call\",\"what\":\"" +
           what + "\"}\n";
  };
  ReadInto(one, line("1.0", "first") + line("3.0", "third"));
  ReadInto(other, line("2.0", "second") + line("3.0", "fourth"));
  EXPECT_EQ(Names(Merge({&one, &other})), "first second third fourth ");
  EXPECT_EQ(Merge({&one, &other})[1].file, 1u);
}

TEST(MergeTest, ATraceWithAClockOfItsOwnBeginsWithTheOthers) {
  Trace program, host;
  ReadInto(program, TraceText().Call("alloc_pd", "context1").text());
  ReadInto(host, R"({"time":7.0,"host":"a","process":0,"kind":"host","what":"START"})"
                 "\n"
                 R"({"time":9.0,"host":"a","process":0,"kind":"host","what":"LATER"})"
                 "\n");
  const auto merged = Merge({&program, &host});
  EXPECT_EQ(Names(merged), "alloc_pd START LATER ");
  EXPECT_EQ(merged[2].time_ns - merged[0].time_ns, 2'000'000'000);
  // Without another trace, the times of the host's trace do not change.
  EXPECT_EQ(Merge({&host})[0].time_ns, 7'000'000'000);
}

}  // namespace
}  // namespace rdmaemu::trace_tools
