#include "tools/cli/files/tree/mount_tree.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

namespace rdmaemu::cli {
namespace {

// One host, "a", whose answers the test sets.
class FakeHosts final : public HostAnswers {
 public:
  std::vector<std::string> Names() override { return {"a"}; }
  bool IsRunning(std::string_view host) override { return host == "a"; }
  Result<std::string> Call(std::string_view host, CallOp op, std::string_view body) override {
    if (host != "a") return Fail(ENOENT);
    last_op = op;
    last_body = body;
    if (error != 0) return Fail(error);
    return answer;
  }
  Status MoveClock(std::string_view, std::string_view how) override {
    last_body = how;
    return {};
  }
  std::string Refusal(std::string_view) override { return refusal; }
  void SetRefusal(std::string_view, std::string text) override { refusal = std::move(text); }
  Result<uint64_t> StreamBytes(std::string_view, StreamKind) override { return 7; }
  Result<std::unique_ptr<Stream>> OpenStream(std::string_view, StreamKind) override {
    return Fail(EOPNOTSUPP);
  }

  std::string answer, refusal, last_body;
  int error = 0;
  CallOp last_op = CallOp::kNone;
};

class MountTreeTest : public ::testing::Test {
 protected:
  int ErrorAt(const char* path) {
    const auto file = tree_.At(path);
    return file ? 0 : file.error().code;
  }
  FakeHosts hosts_;
  MountTree tree_{hosts_};
};

TEST_F(MountTreeTest, ARefusedRuleLeavesItsReason) {
  hosts_.answer = R"({"error":"no such place"})";
  const Status refused = tree_.Write("/a/faults/new", "at = 1\n");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EINVAL);
  EXPECT_EQ(hosts_.last_body, "at = 1");
  EXPECT_EQ(tree_.At("/a/faults/error")->text, "no such place\n");
  hosts_.answer = R"({"name":"rule 1"})";
  EXPECT_TRUE(tree_.Write("/a/faults/new", "at = 1"));
  EXPECT_EQ(tree_.At("/a/faults/error")->text, "");
}

TEST_F(MountTreeTest, ARuleIsAFileThatCanBeRemoved) {
  hosts_.answer = R"([{"name":"x/y","at":"cm.req","does":"drop = true","matched":2,"fired":1}])";
  const auto rule = tree_.At("/a/faults/x%2Fy");
  ASSERT_TRUE(rule);
  EXPECT_EQ(rule->text,
            "name: x/y\nat: cm.req\ndoes: drop = true\nmatched: 2\nfired: 1\nheld: 0\n");
  EXPECT_EQ(ErrorAt("/a/faults/z"), ENOENT);
  EXPECT_TRUE(tree_.Remove("/a/faults/x%2Fy"));
  EXPECT_EQ(hosts_.last_op, CallOp::kFaultRemove);
  EXPECT_EQ(hosts_.last_body, "x/y");
  EXPECT_EQ(tree_.Remove("/a/faults/new").error().code, EPERM);
}

TEST_F(MountTreeTest, ASilentHostHasAStatus) {
  hosts_.error = ETIMEDOUT;
  EXPECT_EQ(tree_.At("/a/status")->text, "name: a\nanswers: no\n");
  EXPECT_EQ(ErrorAt("/a/qps"), ETIMEDOUT);
  EXPECT_EQ(ErrorAt("/b/status"), ENOENT);
  EXPECT_EQ(ErrorAt("/b"), ENOENT);
}

TEST_F(MountTreeTest, CountersAreATree) {
  hosts_.answer = R"({"counters":{"naks":3,"dropped":{"no_qp":4}}})";
  EXPECT_EQ(tree_.At("/a/counters/naks")->text, "3\n");
  EXPECT_EQ(tree_.At("/a/counters/dropped/no_qp")->text, "4\n");
  EXPECT_EQ(tree_.At("/a/counters")->entries.size(), 2u);
  EXPECT_EQ(ErrorAt("/a/counters/none"), ENOENT);
  EXPECT_EQ(ErrorAt("/a/counters/naks/x"), ENOTDIR);
}

TEST_F(MountTreeTest, StreamsAndTheClock) {
  EXPECT_TRUE(tree_.At("/a/trace.jsonl")->is_stream);
  EXPECT_EQ(tree_.At("/a/packets.pcapng")->bytes, 7u);
  EXPECT_TRUE(tree_.Write("/a/clock", "250ms\n"));
  EXPECT_EQ(hosts_.last_body, "250ms");
  EXPECT_EQ(tree_.Write("/a/status", "x").error().code, EACCES);
}

TEST(RuleFileName, GivesEachRuleAName) {
  for (const char* const rule : {"rule 1", "a/b", "50%", "%2F", "new", "error", ".", ".."}) {
    const std::string name = RuleFileName(rule);
    EXPECT_EQ(name.find('/'), name.npos);
    EXPECT_NE(name, "new");
    EXPECT_NE(name, "error");
    EXPECT_NE(name, ".");
    EXPECT_NE(name, "..");
    EXPECT_EQ(RuleOfFileName(name), rule);
  }
  EXPECT_EQ(RuleFileName(std::string(256, 'x')), "");
}

}  // namespace
}  // namespace rdmaemu::cli
