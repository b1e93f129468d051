// rdmaemu/testing.h: the messages of its matchers when they fail. The failures are real ones that
// the test catches.
#include <gtest/gtest-spi.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/embedded/pair.h"
#include "tests/embedded/self.h"

namespace rdmaemu_test {
namespace {

using rdmaemu::Fault;
using rdmaemu::testing::WithFault;
using testing::HasSubstr;

class WordsTest : public rdmaemu::testing::EmbeddedTest {};

template <class Matcher, class Value>
std::string Explain(const Matcher& matcher, const Value& value) {
  testing::StringMatchResultListener listener;
  const testing::Matcher<const Value&> typed(matcher);
  EXPECT_FALSE(typed.MatchAndExplain(value, &listener));
  return "expected " + testing::DescribeMatcher<const Value&>(typed) + ", " + listener.str();
}

TEST_F(WordsTest, AnEventSaysWhatItIs) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
  ASSERT_NO_FATAL_FAILURE(pair.Resolve());
  const Fault reject("at = \"cm.req\", reject = 28");
  ASSERT_EQ(pair.Connect(), 0);
  const Event event = NextEvent(pair.client.channel);
  EXPECT_EQ(Explain(EventIs(RDMA_CM_EVENT_ESTABLISHED, 0), event),
            "expected is RDMA_CM_EVENT_ESTABLISHED, status 0, which is RDMA_CM_EVENT_REJECTED, "
            "status 28");
  EXPECT_EQ(Explain(EventIs(RDMA_CM_EVENT_REJECTED), Event()),
            "expected is RDMA_CM_EVENT_REJECTED, which is no event");
  EXPECT_THAT(event, EventIs(RDMA_CM_EVENT_REJECTED));
}

TEST_F(WordsTest, ACompletionSaysWhatItIs) {
  ibv_wc wc{};
  wc.status = IBV_WC_RNR_RETRY_EXC_ERR;
  EXPECT_THAT(Explain(CompletionIs(IBV_WC_SUCCESS, IBV_WC_RECV), std::optional(wc)),
              HasSubstr("RNR retry counter exceeded"));
  EXPECT_THAT(Explain(CompletionIs(IBV_WC_SUCCESS), std::optional<ibv_wc>()),
              HasSubstr("no completion"));
}

TEST_F(WordsTest, AnEventThatCannotComeIsAFailureWithTheReason) {
  rdma_event_channel* channel = rdma_create_event_channel();
  EXPECT_NONFATAL_FAILURE(NextEvent(channel), "nothing is due");
  rdma_destroy_event_channel(channel);
}

TEST_F(WordsTest, ARuleThatNeverFiresIsAFailure) {
  EXPECT_NONFATAL_FAILURE(WithFault("at = \"cm.rej\", drop = true", [] {}), "never fired");
}

TEST_F(WordsTest, ARuleEndsWithItsScope) {
  {
    const Fault one("name = \"one\", at = \"cm.req\", drop = true");
    EXPECT_EQ(one.name(), "one");
    EXPECT_EQ(rdmaemu_rules(nullptr, 0), 1);
  }
  EXPECT_EQ(rdmaemu_rules(nullptr, 0), 0);
}

TEST_F(WordsTest, AWrongRuleThrowsItsSentence) {
  try {
    Fault("at = \"nowhere\", drop = true");
    FAIL();
  } catch (const rdmaemu::EmbeddingError& error) {
    EXPECT_EQ(error.error(), EINVAL);
    EXPECT_THAT(error.what(), HasSubstr("nowhere"));
  }
}

// Fails on purpose; the test below runs it.
TEST_F(WordsTest, DISABLED_Fails) {
  ibv_free_device_list(ibv_get_device_list(nullptr));
  ADD_FAILURE() << "on purpose";
}

TEST(Failures, ShowTheTimeline) {
  const Ran ran = RunSelf("--gtest_also_run_disabled_tests --gtest_filter='*DISABLED_Fails'");
  EXPECT_NE(ran.status, 0);
  EXPECT_THAT(ran.shown, HasSubstr("what the host did"));
  EXPECT_THAT(ran.shown, HasSubstr("list_devices"));
}

constexpr int kMoreThanAMessage = 100;     // the message has 60 lines
constexpr int kMoreThanATimeline = 5'000;  // the hosts keep 4096 lines

void ListDevices(int times) {
  for (int i = 0; i < times; i++) ibv_free_device_list(ibv_get_device_list(nullptr));
}

// These fail on purpose; the tests below run them.
TEST_F(WordsTest, DISABLED_FailsBeforeMuchMore) {
  ListDevices(kMoreThanAMessage);
  rdma_destroy_event_channel(rdma_create_event_channel());
  ADD_FAILURE() << "on purpose";
  ListDevices(kMoreThanATimeline);
}
TEST_F(WordsTest, DISABLED_FailsAfterMuch) {
  ListDevices(kMoreThanAMessage);
  ADD_FAILURE() << "on purpose";
}

TEST(Failures, ShowTheRecordsBeforeThemHoweverManyFollow) {
  const Ran ran =
      RunSelf("--gtest_also_run_disabled_tests --gtest_filter='*DISABLED_FailsBeforeMuchMore'");
  EXPECT_THAT(ran.shown, HasSubstr("cm_destroy_channel"));
}

// Returns the paths of the files that the output names.
std::vector<std::string> FilesOf(const std::string& shown) {
  const std::string before = "all of them: ";
  std::vector<std::string> files;
  for (size_t at = 0; (at = shown.find(before, at)) != std::string::npos;) {
    at += before.size();
    files.push_back(shown.substr(at, shown.find(']', at) - at));
  }
  return files;
}

TEST(Failures, OfEachRunOfATestHaveAFileOfTheirOwn) {
  const Ran ran = RunSelf(
      "--gtest_also_run_disabled_tests --gtest_filter='*DISABLED_FailsAfterMuch' --gtest_repeat=2");
  const std::vector<std::string> files = FilesOf(ran.shown);
  ASSERT_EQ(files.size(), 2u) << ran.shown;
  EXPECT_NE(files[0], files[1]);
  for (const std::string& file : files) EXPECT_TRUE(std::filesystem::exists(file)) << file;
}

TEST(Failures, JoinTheTimelineAtTheFailureWithTheLaterOne) {
  using rdmaemu::testing::JoinTimelines;
  const auto join = [](const char* at_failure, const char* now) {
    const auto joined = JoinTimelines(at_failure, now);
    return joined.text + "at " + std::to_string(joined.byte);
  };
  EXPECT_EQ(join("", "a\nb\n"), "a\nb\nat 0");
  EXPECT_EQ(join("a\nb\n", "a\nb\nc\n"), "a\nb\nc\nat 4") << "nothing was dropped";
  EXPECT_EQ(join("a\nb\n", "b\nc\n"), "a\nb\nc\nat 4") << "the first line was dropped";
  EXPECT_THAT(join("a\nb\n", "c\nd\n"), testing::StartsWith("a\nb\n[the host did more"));
  EXPECT_EQ(join("a\nb\n", ""), "a\nb\nat 4") << "the hosts have ended";
}

// Returns lines of nine bytes each.
std::string Lines(size_t count) {
  std::string text;
  for (size_t i = 100; i < 100 + count; i++) text += "line " + std::to_string(i) + "\n";
  return text;
}

TEST(Failures, ShowSixtyLinesAroundTheFailureAndNameAFileWithAll) {
  using rdmaemu::testing::TimelineAround;
  EXPECT_EQ(TimelineAround(Lines(60), 0), Lines(60));
  constexpr size_t kLineBytes = 9;
  const std::string text = Lines(200);
  const std::string middle = TimelineAround(text, 100 * kLineBytes);
  EXPECT_THAT(middle, testing::StartsWith("[lines 71 to 130 of 200; all of them: /"));
  EXPECT_THAT(middle, HasSubstr("]\nline 170\n"));
  EXPECT_THAT(middle, testing::EndsWith("line 229\n"));
  EXPECT_THAT(TimelineAround(text, 0), HasSubstr("]\nline 100\n"));
  EXPECT_THAT(TimelineAround(text, SIZE_MAX), testing::EndsWith("line 299\n"));
  const size_t begin = middle.find("/");
  std::ifstream file(middle.substr(begin, middle.find(']') - begin));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), text);
}

}  // namespace
}  // namespace rdmaemu_test
