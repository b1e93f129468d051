#include "tools/trace/compare.h"

#include "tools/trace/accept.h"
#include "tools/trace/report.h"
#include "tools/trace/traces_for_test.h"

namespace rdmaemu::trace_tools {
namespace {

Comparison CompareTexts(const TraceText& a, const TraceText& b, CanonicalOptions options = {}) {
  Trace trace_a, trace_b;
  ReadInto(trace_a, a.text(), "a.jsonl");
  ReadInto(trace_b, b.text(), "b.jsonl");
  const auto canonical = Canonicalize(trace_a, trace_b, options);
  EXPECT_TRUE(canonical) << canonical.error();
  return Compare(canonical->first, canonical->second);
}

// Returns one line for each difference: its place, its name, and the parts that differ.
std::string Differences(const Comparison& comparison) {
  std::string text;
  for (const Difference& each : comparison.differences) {
    text += StreamText(each.stream) + ": " + each.head;
    if (!each.a) text += " only in b";
    if (!each.b) text += " only in a";
    for (const PartDifference& part : each.parts) {
      text += " " + part.part + ":" + part.a + "|" + part.b;
    }
    text += "\n";
  }
  return text;
}

std::string Differences(const TraceText& a, const TraceText& b) {
  return Differences(CompareTexts(a, b));
}

// Returns the trace of a connection. Values that may differ between runs depend on `process`.
TraceText Connection(int64_t process) {
  const std::string n = std::to_string(process);
  TraceText text(process);
  text.Start("/usr/bin/rping")
      .Call("rdma_create_id", "id1", R"({"id":"id1","context":"memory"})")
      .Call("rdma_resolve_addr", "id1",
            R"({"id":"id1","dst_addr":"127.0.)" + n + R"(.1:7174","timeout_ms":2000})")
      .Add("event", "ADDR_RESOLVED", "id1", R"({"status":0})")
      .Call("reg_mr", "pd1", R"({"pd":"pd1","length":64,"access":["LOCAL_WRITE"]})", "\"mr1\"")
      .Call("post_send", "qp1", R"({"wr":[{"wr_id":9)" + n + R"(00000000,"rkey":)" + n + "}]}")
      .Add("completion", "SUCCESS", "cq1",
           R"({"wr_id":9)" + n + R"(00000000,"opcode":"SEND","qp":"qp1","vendor_err":)" + n + "}");
  return text;
}

TEST(CompareTest, RunsWithOtherPidsKeysPointersAndAddressesAreTheSame) {
  EXPECT_EQ(Differences(Connection(100), Connection(123)), "");
}

TEST(CompareTest, LargeTagsAreNamedAndSmallOnesKept) {
  const auto send = [](const std::string& tag) {
    return TraceText().Call("post_send", "qp1",
                            R"({"wr":[{"wr_id":)" + tag + R"(,"imm_data":)" + tag + "}]}");
  };
  EXPECT_EQ(Differences(send("65536"), send("8238754")), "");
  EXPECT_EQ(Differences(send("65535"), send("65534")),
            "process, thread 1, qp1: call post_send wr[0].wr_id:65535|65534"
            " wr[0].imm_data:65535|65534\n");
}

TEST(CompareTest, PortsAreNamedInTheOrderOfTheirAppearance) {
  const auto ports = [](const std::string& one, const std::string& other) {
    return TraceText()
        .Call("rdma_get_src_port", "id1", "{}", one)
        .Call("rdma_getaddrinfo", "", R"({"service":")" + one + R"("})")
        .Call("rdma_bind_addr", "id1", R"({"addr":"127.0.0.1:)" + other + R"("})");
  };
  EXPECT_EQ(Differences(ports("694", "695"), ports("50000", "50001")), "");
  EXPECT_NE(Differences(ports("694", "694"), ports("50000", "50001")), "");
}

TEST(CompareTest, AFailureIsADifferentErrnoAndResult) {
  TraceText a = Connection(100), b = Connection(123);
  a.Call("rdma_connect", "id1", R"({"id":"id1"})");
  b.Failed("rdma_connect", "id1", "EINVAL", R"({"id":"id1"})");
  EXPECT_EQ(Differences(a, b),
            "rping, thread 1, id1: call rdma_connect result:0|-1 errno:|EINVAL\n");
}

TEST(CompareTest, TheMarkOfAFaultRuleIsNotCompared) {
  const auto run = [](const std::string& mark) {
    return TraceText()
        .Add("call", "rdma_connect", "id1", "{}", "\"result\":0" + mark)
        .Add("call", "rdma_get_cm_event", "channel1", "{}", "\"result\":0" + mark);
  };
  EXPECT_EQ(Differences(run(""), run(",\"injected\":\"rule 1\"")), "");
}

TEST(CompareTest, AMissingRecordIsFoundOnEitherSide) {
  TraceText a = Connection(100), b = Connection(123);
  a.Add("event", "DISCONNECTED", "id1");
  EXPECT_EQ(Differences(a, b), "rping, thread 1, id1: event DISCONNECTED only in a\n");
  EXPECT_EQ(Differences(b, a), "rping, thread 1, id1: event DISCONNECTED only in b\n");
}

TEST(CompareTest, TheOrderWithinAnObjectAndThreadCountsAndBetweenObjectsDoesNot) {
  TraceText a, b, c;
  a.Call("modify_qp", "qp1").Call("query_qp", "qp1").Call("modify_qp", "qp2");
  b.Call("modify_qp", "qp1").Call("modify_qp", "qp2").Call("query_qp", "qp1");
  EXPECT_EQ(Differences(a, b), "");
  c.Call("query_qp", "qp1").Call("modify_qp", "qp1").Call("modify_qp", "qp2");
  EXPECT_NE(Differences(a, c), "");
}

TEST(CompareTest, CallsThatPollAreNotCountedAndTheirFailuresAre) {
  TraceText a, b;
  for (int i = 0; i < 100; i++) a.Call("poll_cq", "cq1");
  a.Failed("rdma_get_cm_event", "channel1", "EAGAIN");
  a.Call("req_notify_cq", "cq1").Call("get_cq_event", "compchannel1").Call("create_cq", "context1");
  a.Add("call", "rdma_get_cm_event", "channel1", "{}", "\"unfinished\":true");
  b.Call("create_cq", "context1");
  EXPECT_EQ(Differences(a, b), "");
  b.Failed("poll_cq", "cq1", "EIO");
  EXPECT_EQ(Differences(a, b), "process, thread 1, cq1: call poll_cq only in b\n");
}

TEST(CompareTest, CompletionsOfOneQueuePairCountByDirectionWhicheverThreadPolls) {
  const auto completion = [](TraceText& text, const char* opcode, int id) {
    text.Add("completion", "SUCCESS", "cq1",
             R"({"qp":"qp1","opcode":")" + std::string(opcode) + R"(","wr_id":)" +
                 std::to_string(id) + "}");
  };
  TraceText a, b;
  completion(a, "SEND", 1), completion(a, "RECV", 2), completion(a, "SEND", 3);
  b.Thread(2), completion(b, "RECV", 2), completion(b, "SEND", 1), completion(b, "SEND", 3);
  // Thread 1 polls in a, thread 2 in b. A different thread alone does not count as a difference.
  EXPECT_EQ(Differences(a, b), "");
  TraceText c;
  completion(c, "SEND", 3), completion(c, "RECV", 2), completion(c, "SEND", 1);
  EXPECT_NE(Differences(a, c), "");
}

TEST(CompareTest, FailedCompletionsOfOneQueuePairCountByQueue) {
  const auto failed = [](TraceText& text, const char* cq, int id) {
    text.Add("completion", "WR_FLUSH_ERR", "qp1",
             R"({"cq":")" + std::string(cq) + R"(","qp_num":"qp1.qp_num","wr_id":)" +
                 std::to_string(id) + "}");
  };
  TraceText a, b, c;
  for (TraceText* text : {&a, &b, &c}) {
    text->Call("create_qp", "pd1", R"({"send_cq":"cq1","recv_cq":"cq2"})", "\"qp1\"");
  }
  failed(a, "cq1", 1), failed(a, "cq1", 2), failed(a, "cq2", 3);
  failed(b, "cq2", 3), failed(b, "cq1", 1), failed(b, "cq1", 2);
  // The program polled its two queues in another order.
  EXPECT_EQ(Differences(a, b), "");
  failed(c, "cq1", 2), failed(c, "cq1", 1), failed(c, "cq2", 3);
  EXPECT_NE(Differences(a, c), "");
}

TEST(CompareTest, ThreadsAreMatchedByWhatTheyDo) {
  TraceText a, b;
  a.Call("alloc_pd", "context1", "{}", "\"pd1\"");
  b.Call("alloc_pd", "context1", "{}", "\"pd1\"");
  a.Thread(2).Call("create_qp", "pd1", "{}", "\"qp1\"").Call("modify_qp", "qp1");
  a.Thread(3).Call("create_cq", "context1", "{}", "\"cq1\"").Call("destroy_cq", "cq1");
  b.Thread(2).Call("create_cq", "context1", "{}", "\"cq1\"").Call("destroy_cq", "cq1");
  b.Thread(3).Call("create_qp", "pd1", "{}", "\"qp1\"").Call("modify_qp", "qp1");
  EXPECT_EQ(Differences(a, b), "");
}

TEST(CompareTest, ObjectsAreNumberedByTheirThread) {
  // The two threads race, so the process numbers their queue pairs in another order.
  TraceText a, b;
  a.Call("alloc_pd", "context1", "{}", "\"pd1\"");
  b.Call("alloc_pd", "context1", "{}", "\"pd1\"");
  a.Thread(2).Call("create_qp", "pd1", R"({"type":"RC"})", "\"qp1\"");
  a.Thread(3).Call("create_qp_ex", "pd1", R"({"type":"UD"})", "\"qp2\"");
  b.Thread(3).Call("create_qp_ex", "pd1", R"({"type":"UD"})", "\"qp1\"");
  b.Thread(2).Call("create_qp", "pd1", R"({"type":"RC"})", "\"qp2\"");
  EXPECT_EQ(Differences(a, b), "");
}

TEST(CompareTest, ProcessesAreMatchedByTheirProgram) {
  TraceText a, b;
  a.Process(10).Start("server").Call("alloc_pd", "context1");
  a.Process(20).Start("client").Call("create_cq", "context1");
  b.Process(30).Start("server").Call("alloc_pd", "context1");
  b.Process(25).Start("client").Call("create_cq", "context1");
  EXPECT_EQ(Differences(a, b), "");
  b.Process(30).Call("dealloc_pd", "pd1");
  EXPECT_EQ(Differences(a, b), "server, thread 1, pd1: call dealloc_pd only in b\n");
}

TEST(CompareTest, AForkedChildBelongsToItsParent) {
  TraceText text;
  text.Process(10).Start("server").Process(11).Start("server", 10).Call("alloc_pd", "context1");
  const Comparison comparison = CompareTexts(text, text);
  EXPECT_EQ(Differences(comparison), "");
  bool found = false;
  for (const StreamKey& stream : comparison.streams) found |= stream.process == "server/server";
  EXPECT_TRUE(found);
}

TEST(CompareTest, LostRecordsAreAlwaysADifference) {
  TraceText text;
  text.Add("lost", "", "", R"({"count":3})");
  EXPECT_EQ(CompareTexts(text, text).differences.size(), 1u);
}

TEST(CompareTest, TimingCountsOnRequestInDecades) {
  TraceText a, b, c;
  a.Took(1'100'000).Call("rdma_connect", "id1");
  b.Took(9'900'000).Call("rdma_connect", "id1");
  c.Took(11'000'000).Call("rdma_connect", "id1");
  EXPECT_EQ(Differences(a, c), "");
  EXPECT_EQ(Differences(CompareTexts(a, b, {.with_timing = true})), "");
  EXPECT_EQ(Differences(CompareTexts(a, c, {.with_timing = true})),
            "process, thread 1, id1: call rdma_connect took:1 ms to 10 ms|10 ms to 100 ms\n");
}

TEST(CompareTest, TheFirstDifferenceHasThreeEqualRecordsBeforeIt) {
  TraceText a, b;
  for (int i = 0; i < 5; i++) a.Call("modify_qp", "qp1"), b.Call("modify_qp", "qp1");
  a.Call("post_send", "qp1"), b.Call("post_recv", "qp1");
  const Comparison comparison = CompareTexts(a, b);
  const Difference* const first = comparison.First();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->equal_before, 5u);
  ASSERT_EQ(first->context_a.size(), kContextRecords);
  EXPECT_EQ(first->context_a[0].line, 3u);
  EXPECT_EQ(first->context_b, (std::vector<size_t>{3, 4, 5}));
}

TEST(CompareTest, TracesOfTwoKindsAndEmptyTracesAreRefused) {
  Trace program, host, empty;
  ReadInto(program, TraceText().Call("alloc_pd", "context1").text());
  ReadInto(host,
           R"({"time":1.0,"host":"a","process":0,"kind":"host","what":"START"})"
           "\n",
           "h.jsonl");
  ReadInto(empty, "", "e.jsonl");
  EXPECT_NE(Canonicalize(program, host, {}).error().find("h.jsonl is the trace of a host"),
            std::string::npos);
  EXPECT_EQ(Canonicalize(empty, program, {}).error(), "e.jsonl has no records");
}

// ---- traces of hosts

// Returns the trace of a host whose client connects. Values that may differ between runs depend on
// `n`. `first` is the number of the client.
std::string HostTrace(int n, int first, const std::string& more = "") {
  std::string text;
  const auto add = [&](int process, const std::string& rest) {
    text += "{\"time\":" + std::to_string(text.size()) +
            ".0,\"host\":\"a\",\"process\":" + std::to_string(process) + "," + rest + "}\n";
  };
  const std::string number = std::to_string(n);
  add(0, R"("kind":"host","object":"","what":"START","seed":")" + number + "\"");
  for (int watcher = 1; watcher < first; watcher++) {
    add(watcher, R"("kind":"call","object":"","what":"host_status","errno":0)");
    add(watcher, R"("kind":"process","object":"","what":"END")");
  }
  add(0, R"("kind":"clock","object":"","what":"jump","by_ns":)" + number);
  add(first, R"("kind":"call","object":"","what":"create_qp","errno":0)");
  add(0, R"("kind":"qp.state","object":"qp )" + number + R"(","what":"RESET -> INIT")");
  add(0, R"("kind":"cm.send","object":"id 3","what":"REQ","local_comm_id":)" + number +
             R"(,"service_id":17)");
  text += more;
  add(first, R"("kind":"process","object":"","what":"END")");
  return text;
}

std::string HostDifferences(const std::string& a, const std::string& b) {
  Trace trace_a, trace_b;
  ReadInto(trace_a, a, "a.jsonl");
  ReadInto(trace_b, b, "b.jsonl");
  const auto canonical = Canonicalize(trace_a, trace_b, {});
  EXPECT_TRUE(canonical) << canonical.error();
  return Differences(Compare(canonical->first, canonical->second));
}

TEST(CompareTest, HostsWithOtherSeedsNumbersAndWatchersAreTheSame) {
  EXPECT_EQ(HostDifferences(HostTrace(17, 1), HostTrace(4711, 3)), "");
}

TEST(CompareTest, HostsDifferByRecordsValuesAndFailedCalls) {
  const auto record = [](const std::string& rest) {
    return R"({"time":9.5,"host":"a","process":1,)" + rest + "}\n";
  };
  const auto error = [&](const std::string& status) {
    return record(R"("kind":"wc.error","object":"qp 17","what":")" + status + "\"");
  };
  EXPECT_EQ(HostDifferences(HostTrace(17, 1), HostTrace(17, 1, error("RETRY_EXC_ERR"))),
            "a, qp#1: wc.error RETRY_EXC_ERR only in b\n");
  const auto refused = [&](int number) {
    return record(R"("kind":"call","object":"","what":"poll_cq","errno":)" +
                  std::to_string(number));
  };
  EXPECT_EQ(HostDifferences(HostTrace(17, 1, refused(5)), HostTrace(17, 1, refused(22))),
            "a, calls of client 1: call poll_cq errno:5|22\n");
  EXPECT_EQ(HostDifferences(HostTrace(17, 1, refused(0)), HostTrace(17, 1)), "");
}

// ---- acceptances

TEST(AcceptanceTest, AnAcceptanceNeedsNameAndReasonAndKnownKeys) {
  const auto error = [](const std::string& text) {
    const auto parsed = ParseAcceptances(text, "k.toml");
    return parsed ? "" : parsed.error();
  };
  EXPECT_EQ(error("[[accept]]\nwhat = \"reg_mr\"\nreason = \"because\"\n"), "");
  EXPECT_EQ(error("[[accept]]\nwhat = \"reg_mr\"\n"), "k.toml:1: give the acceptance a reason");
  EXPECT_NE(error("[[accept]]\nreason = \"r\"\n").find("k.toml:1: give the acceptance a `what`"),
            std::string::npos);
  EXPECT_NE(error("[[accept]]\nwhat = \"x\"\nreason = \"r\"\nwat = \"x\"\n")
                .find("k.toml:4: there is no key `wat`"),
            std::string::npos);
  EXPECT_NE(error("[[accept]]\nwhat = \"x\"\nreason = \"\"\n").find("k.toml:3: `reason` must"),
            std::string::npos);
  EXPECT_NE(error("[[accept]]\nwhat = \"x\"\nreason = \"r\"\nonly = \"c\"\n").find("k.toml:4:"),
            std::string::npos);
  EXPECT_NE(error("[[accept]]\nwhat = \"x\"\nreason = \"r\"\nparts = \"errno\"\n").find("`parts`"),
            std::string::npos);
  EXPECT_NE(error("[[acept]]\nwhat = \"x\"\n").find("only [[accept]] tables"), std::string::npos);
  EXPECT_NE(error("accept = 3\n").find("k.toml:1: only [[accept]] tables"), std::string::npos);
  EXPECT_NE(error("[[accept]\n").find("k.toml:1:"), std::string::npos);
}

class AcceptTest : public testing::Test {
 protected:
  // Returns how many of the two differences the acceptance accepts. reg_mr of pd1 fails in b. Only
  // a has an event of id1.
  size_t Accepted(const std::string& keys) {
    TraceText a, b;
    a.Call("reg_mr", "pd1", "{}", "\"mr1\"").Add("event", "TIMEWAIT_EXIT", "id1");
    b.Failed("reg_mr", "pd1", "EOPNOTSUPP").Call("alloc_pd", "context1");
    a.Call("alloc_pd", "context1");
    Comparison comparison = CompareTexts(a, b);
    EXPECT_EQ(comparison.differences.size(), 2u);
    auto acceptances = ParseAcceptances("[[accept]]\nreason = \"r\"\n" + keys, "k.toml");
    EXPECT_TRUE(acceptances) << acceptances.error();
    Accept(*acceptances, comparison);
    size_t accepted = 0;
    for (const Difference& each : comparison.differences) accepted += each.accepted == "r";
    EXPECT_EQ((*acceptances)[0].used, accepted);
    return accepted;
  }
};

TEST_F(AcceptTest, EachKeyNarrowsTheAcceptance) {
  EXPECT_EQ(Accepted("what = \"reg_mr\"\n"), 1u);
  EXPECT_EQ(Accepted("what = \"reg_*\"\n"), 1u);
  EXPECT_EQ(Accepted("what = \"*\"\n"), 2u);
  EXPECT_EQ(Accepted("what = \"dereg_mr\"\n"), 0u);
  EXPECT_EQ(Accepted("what = \"*\"\nkind = \"event\"\n"), 1u);
  EXPECT_EQ(Accepted("what = \"*\"\nprocess = \"process\"\n"), 2u);
  EXPECT_EQ(Accepted("what = \"*\"\nprocess = \"other\"\n"), 0u);
  EXPECT_EQ(Accepted("what = \"*\"\nobject = \"pd1\"\n"), 1u);
  EXPECT_EQ(Accepted("what = \"*\"\nobject = \"id\"\n"), 1u);
  EXPECT_EQ(Accepted("what = \"*\"\nobject = \"pd2\"\n"), 0u);
  EXPECT_EQ(Accepted("what = \"*\"\nonly = \"a\"\n"), 1u);
  EXPECT_EQ(Accepted("what = \"*\"\nonly = \"both\"\n"), 1u);
  EXPECT_EQ(Accepted("what = \"*\"\nonly = \"b\"\n"), 0u);
  EXPECT_EQ(Accepted("what = \"*\"\nb = \"EOPNOTSUPP\"\n"), 1u);
  EXPECT_EQ(Accepted("what = \"*\"\na = \"EOPNOTSUPP\"\n"), 0u);
}

TEST_F(AcceptTest, PartsMustCoverAllThatDiffers) {
  EXPECT_EQ(Accepted("what = \"reg_mr\"\nparts = [\"errno\"]\n"), 0u);
  EXPECT_EQ(Accepted("what = \"reg_mr\"\nparts = [\"errno\", \"result\"]\n"), 1u);
  EXPECT_EQ(Accepted("what = \"*\"\nparts = [\"errno\", \"result\"]\n"), 1u);
}

// ---- reports

class ReportTest : public testing::Test {
 protected:
  // Two equal differences, and another one.
  ReportTest() {
    TraceText a, b;
    for (const char* qp : {"qp1", "qp2"}) {
      a.Call("modify_qp", qp), b.Call("modify_qp", qp);
      a.Call("query_qp", qp), b.Failed("query_qp", qp, "EINVAL");
    }
    b.Add("event", "ESTABLISHED", "id1", R"({"text":"<&\">"})");
    comparison_ = CompareTexts(a, b);
  }
  void AcceptWith(const std::string& text) {
    auto parsed = ParseAcceptances(text, "k.toml");
    ASSERT_TRUE(parsed) << parsed.error();
    acceptances_ = *parsed;
    Accept(acceptances_, comparison_);
  }
  Report report() { return {"a.jsonl", "b.jsonl", comparison_, acceptances_, "k.toml"}; }
  void ExpectText(const std::vector<std::string>& parts) {
    const std::string text = ReportText(report());
    for (const std::string& part : parts) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
    }
  }

  Comparison comparison_;
  std::vector<Acceptance> acceptances_;
};

TEST_F(ReportTest, TheTextHasTheFirstDifferenceAndEqualOnesInOneRow) {
  ExpectText({"a: a.jsonl, 4 records, 4 compared",
              "first difference: process, thread 1, qp1, after 1 equal record\n",
              "    1 | 1          call modify_qp  result=0\n",
              "  a 2              call query_qp  result=0\n",
              "  b 2              call query_qp  result=-1  errno=EINVAL\n",
              "    2  call query_qp      result: 0 | -1; errno: (none) | EINVAL  2 | 2  process,",
              "    1  event ESTABLISHED  only in b", "\ndifferent: 3 differences\n"});
}

TEST_F(ReportTest, AcceptedDifferencesKeepTheirReasonAndUnusedAcceptancesAreErrors) {
  AcceptWith(
      "[[accept]]\nwhat = \"*\"\nreason = \"known\"\n[[accept]]\nwhat = \"gone\"\nreason = "
      "\"r\"\n");
  EXPECT_EQ(report().Open(), 0u);
  EXPECT_EQ(report().Unused(), 1u);
  ExpectText({"accepted: known", "error: k.toml:4: no difference needs this acceptance of gone",
              "\nsame, 3 accepted, 1 unused acceptance\n"});
}

TEST_F(ReportTest, AnAcceptanceOfARaceNeedNotBeUsed) {
  AcceptWith("[[accept]]\nwhat = \"gone\"\nreason = \"r\"\nsometimes = true\n");
  EXPECT_EQ(report().Unused(), 0u);
  EXPECT_FALSE(ParseAcceptances("[[accept]]\nwhat = \"x\"\nreason = \"r\"\nsometimes = 1\n", "k"));
}

TEST_F(ReportTest, LongPartsAreCutInTheContextAndWholeWhereTheyDiffer) {
  const std::string one(100, 'x'), other = one + "y";
  TraceText a, b;
  a.Call("rdma_accept", "id1", "{\"private_data\":\"" + one + "\"}");
  b.Call("rdma_accept", "id1", "{\"private_data\":\"" + other + "\"}");
  comparison_ = CompareTexts(a, b);
  ExpectText({"private_data=" + std::string(47, 'x') + "...  result=0",
              "    private_data: a has " + one + ", b has " + other + "\n"});
}

TEST_F(ReportTest, TheJsonHasAllDifferences) {
  AcceptWith("[[accept]]\nwhat = \"query_qp\"\nreason = \"known\"\n");
  const Json json = ReportJson(report());
  EXPECT_EQ(json["same"], false);
  EXPECT_EQ(json["differences"].size(), 3u);
  EXPECT_EQ(json["differences"][0]["accepted"], "known");
  EXPECT_EQ(json["differences"][0]["parts"][1]["b"], "EINVAL");
  EXPECT_EQ(json["first"]["what"], "ESTABLISHED");
  EXPECT_TRUE(json["first"]["a"].is_null());
  EXPECT_EQ(json["first"]["b"]["line"], 5);
}

TEST_F(ReportTest, TheJunitHasACaseForEachStreamAndAcceptance) {
  AcceptWith(
      "[[accept]]\nwhat = \"query_qp\"\nreason = \"known\"\n[[accept]]\nwhat = \"gone\"\nreason = "
      "\"r\"\n");
  const std::string xml = ReportJunit(report());
  EXPECT_NE(xml.find("tests=\"5\" failures=\"2\" skipped=\"2\""), std::string::npos) << xml;
  EXPECT_NE(xml.find("name=\"process, thread 1, id1\"><failure"), std::string::npos) << xml;
  EXPECT_NE(xml.find("accepted: known"), std::string::npos) << xml;
  EXPECT_NE(xml.find("name=\"k.toml:4\"><failure"), std::string::npos) << xml;
  EXPECT_EQ(xml.find("<&"), std::string::npos) << xml;
}

TEST_F(ReportTest, AStatusOfTheRunIsADifference) {
  AddRunDifference("test", "0", "1", comparison_);
  ExpectText({"status of test", "status: 0 | 1", "different: 4 differences"});
  AcceptWith("[[accept]]\nkind = \"status\"\nwhat = \"of test\"\nreason = \"known\"\n");
  EXPECT_EQ(report().Unused(), 0u);
}

}  // namespace
}  // namespace rdmaemu::trace_tools
