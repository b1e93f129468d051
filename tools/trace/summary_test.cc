#include "tools/trace/summary.h"

#include "tools/trace/select.h"
#include "tools/trace/traces_for_test.h"

namespace rdmaemu::trace_tools {
namespace {

// Returns the objects that a trace does not destroy, with the records that created them.
std::string Left(const TraceText& text) {
  Trace trace;
  ReadInto(trace, text.text());
  std::string left;
  for (const LeftOpen& each : Summarize(Merge({&trace})).left_open) {
    left += each.object + "<" + each.created_by.what + " ";
  }
  return left;
}

TEST(SummaryTest, LatenciesAreMinimumMedianNinetyNinthHundredthAndMaximum) {
  TraceText text;
  for (int64_t i = 1; i <= 200; i++) text.Took(i * 1000).Call("post_send", "qp1");
  text.Took(7).Failed("reg_mr", "pd1", "ENOMEM");
  Trace trace;
  ReadInto(trace, text.text());
  const Summary summary = Summarize(Merge({&trace}));
  ASSERT_EQ(summary.calls.size(), 2u);
  const CallTimes& sends = summary.calls[0];
  EXPECT_EQ(sends.what, "post_send");
  EXPECT_EQ(sends.count, 200u);
  EXPECT_EQ(sends.failed, 0u);
  EXPECT_EQ(sends.min_ns, 1000);
  EXPECT_EQ(sends.median_ns, 100'000);
  EXPECT_EQ(sends.p99_ns, 198'000);
  EXPECT_EQ(sends.max_ns, 200'000);
  EXPECT_EQ(summary.calls[1].failed, 1u);
  ASSERT_EQ(summary.longest_waits.size(), kLongestWaits);
  EXPECT_EQ(summary.longest_waits[0].took_ns, 200'000);
  EXPECT_EQ(summary.longest_waits[9].took_ns, 191'000);
}

TEST(SummaryTest, ObjectsLeftOpenHaveTheCallThatCreatedThem) {
  EXPECT_EQ(Left(TraceText()
                     .Call("alloc_pd", "context1", "{}", "\"pd1\"")
                     .Call("reg_mr", "pd1", R"({"pd":"pd1"})", "\"mr1\"")
                     .Call("reg_mr", "pd1", R"({"pd":"pd1"})", "\"mr2\"")
                     .Call("dereg_mr", "mr1", R"({"mr":"mr1"})")),
            "pd1<alloc_pd mr2<reg_mr ");
}

TEST(SummaryTest, AFailedDestructionLeavesTheObjectOpen) {
  EXPECT_EQ(Left(TraceText()
                     .Call("alloc_pd", "context1", "{}", "\"pd1\"")
                     .Failed("dealloc_pd", "pd1", "EBUSY", R"({"pd":"pd1"})")),
            "pd1<alloc_pd ");
}

TEST(SummaryTest, IdsOfRequestsAndQueuePairsOfIdsAreKnown) {
  TraceText text;
  text.Call("rdma_create_id", "id1", R"({"channel":"channel1","id":"id1"})")
      .Add("event", "CONNECT_REQUEST", "id2", R"({"id":"id2","listen_id":"id1"})")
      .Call("rdma_create_qp", "id2", R"({"id":"id2","pd":"pd1","qp":"qp1"})");
  EXPECT_EQ(Left(text), "id1<rdma_create_id id2<CONNECT_REQUEST qp1<rdma_create_qp ");
  text.Call("rdma_destroy_qp", "id2", R"({"id":"id2"})");
  text.Call("rdma_destroy_id", "id2", R"({"id":"id2"})");
  EXPECT_EQ(Left(text), "id1<rdma_create_id ");
}

TEST(SummaryTest, ProcessesHaveObjectsOfTheirOwn) {
  EXPECT_EQ(Left(TraceText()
                     .Call("alloc_pd", "context1", "{}", "\"pd1\"")
                     .Process(200)
                     .Call("alloc_pd", "context1", "{}", "\"pd1\"")
                     .Call("dealloc_pd", "pd1", R"({"pd":"pd1"})")),
            "pd1<alloc_pd ");
}

TEST(SummaryTest, TextAndJsonSayTheSame) {
  Trace trace;
  ReadInto(trace, TraceText()
                      .Took(1500)
                      .Call("alloc_pd", "context1", "{}", "\"pd1\"")
                      .Add("event", "ESTABLISHED", "id1")
                      .Add("lost", "", "", R"({"count":3})")
                      .text());
  const Summary summary = Summarize(Merge({&trace}));
  const std::string text = SummaryText(summary, {"t.jsonl"});
  for (const char* part :
       {"3 records in 0.000002000 s", "alloc_pd      1       0  1.5 us  1.5 us",
        "event ESTABLISHED", "objects left open: 1",
        "pd1 of process 100, created at t.jsonl:1: alloc_pd() = pd1", "records were lost"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
  const Json json = SummaryJson(summary, {"t.jsonl"});
  EXPECT_EQ(json["calls"][0]["max_ns"], 1500);
  EXPECT_EQ(json["left_open"][0]["object"], "pd1");
  EXPECT_EQ(json["left_open"][0]["line"], 1);
  EXPECT_EQ(json["lost"], 1);
}

TEST(SummaryTest, NoRecordsAreNoError) {
  EXPECT_EQ(Summarize({}).records, 0u);
  EXPECT_NE(SummaryText(Summarize({}), {}).find("objects left open: 0"), std::string::npos);
}

}  // namespace
}  // namespace rdmaemu::trace_tools
