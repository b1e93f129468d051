// GoogleTest for programs that use RDMA: a fixture with hosts of its own, events and completions
// with words for what they are, and the host's timeline in the message of a test that failed.
// Header only; <gmock/gmock.h> has EXPECT_THAT for the matchers.
#pragma once

#include <errno.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <sys/single_threaded.h>
#include <unistd.h>
#include <rdmaemu/rdmaemu.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace rdmaemu::testing {

// An event of RDMA CM, acknowledged when it goes.
struct AcknowledgeEvent {
  void operator()(rdma_cm_event* event) const { rdma_ack_cm_event(event); }
};
class Event {
 public:
  Event() = default;
  explicit Event(rdma_cm_event* event) : event_(event) {}
  explicit operator bool() const { return event_ != nullptr; }
  const rdma_cm_event* operator->() const { return event_.get(); }
  const rdma_cm_event& operator*() const { return *event_; }
  // Acknowledges: from then on the id can be destroyed.
  void Acknowledge() { event_.reset(); }

 private:
  std::unique_ptr<rdma_cm_event, AcknowledgeEvent> event_;
};

inline std::string Describe(const Event& event) {
  if (!event) return "no event";
  return std::string(rdma_event_str(event->event)) + ", status " + std::to_string(event->status);
}
inline void PrintTo(const Event& event, std::ostream* out) { *out << Describe(event); }

// The channel's next event; none, with the reason as a failure of the test, when there can be none:
// in a test of one thread with the virtual clock nothing else would happen, for ever.
inline Event NextEvent(rdma_event_channel* channel) {
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(channel, &event) == 0) return Event(event);
  ADD_FAILURE() << "no event comes: "
                << (errno == EDEADLK ? "nothing is due on this host that could bring one"
                                     : std::strerror(errno));
  return Event();
}

// The next completion; none when nothing is due that could bring one.
inline std::optional<ibv_wc> NextCompletion(ibv_cq* cq) {
  // Looks more often than an embedded host needs until it takes them for a wait. With several
  // threads another one may bring it at any time.
  constexpr int kMaxLooks = 1'000'000;
  ibv_wc completion = {};
  for (int i = 0; i < kMaxLooks || __libc_single_threaded == 0; i++) {
    const int count = ibv_poll_cq(cq, 1, &completion);
    if (count > 0) return completion;
    if (count < 0) break;
  }
  ADD_FAILURE() << "no completion comes";
  return std::nullopt;
}

// EXPECT_THAT(NextEvent(channel), EventIs(RDMA_CM_EVENT_REJECTED, 28));
class EventIsMatcher {
 public:
  EventIsMatcher(rdma_cm_event_type type, std::optional<int> status)
      : type_(type), status_(status) {}
  bool MatchAndExplain(const Event& event, ::testing::MatchResultListener* listener) const {
    *listener << "which is " << Describe(event);
    return event && event->event == type_ && (!status_ || event->status == *status_);
  }
  void DescribeTo(std::ostream* out) const {
    *out << "is " << rdma_event_str(type_);
    if (status_) *out << ", status " << *status_;
  }
  void DescribeNegationTo(std::ostream* out) const {
    *out << "not: ";
    DescribeTo(out);
  }

 private:
  rdma_cm_event_type type_;
  std::optional<int> status_;
};
// Without a status: any.
inline auto EventIs(rdma_cm_event_type type, std::optional<int> status = std::nullopt) {
  return ::testing::MakePolymorphicMatcher(EventIsMatcher(type, status));
}

// EXPECT_THAT(NextCompletion(cq), CompletionIs(IBV_WC_SUCCESS, IBV_WC_RECV));
class CompletionIsMatcher {
 public:
  CompletionIsMatcher(ibv_wc_status status, std::optional<ibv_wc_opcode> opcode)
      : status_(status), opcode_(opcode) {}
  bool MatchAndExplain(const std::optional<ibv_wc>& wc,
                       ::testing::MatchResultListener* listener) const {
    if (!wc) {
      *listener << "which is no completion";
      return false;
    }
    *listener << "which is \"" << ibv_wc_status_str(wc->status) << "\", opcode " << wc->opcode
              << ", wr_id " << wc->wr_id << ", " << wc->byte_len << " bytes";
    // The opcode of a completion with an error says nothing (ibv_poll_cq(3)).
    const bool told = !opcode_ || wc->status != IBV_WC_SUCCESS || wc->opcode == *opcode_;
    return wc->status == status_ && told;
  }
  void DescribeTo(std::ostream* out) const {
    *out << "is \"" << ibv_wc_status_str(status_) << "\"";
    if (opcode_) *out << ", opcode " << *opcode_;
  }
  void DescribeNegationTo(std::ostream* out) const {
    *out << "not: ";
    DescribeTo(out);
  }

 private:
  ibv_wc_status status_;
  std::optional<ibv_wc_opcode> opcode_;
};
inline auto CompletionIs(ibv_wc_status status, std::optional<ibv_wc_opcode> opcode = std::nullopt) {
  return ::testing::MakePolymorphicMatcher(CompletionIsMatcher(status, opcode));
}

// Runs `body` under a rule and expects that the rule did something.
template <class Body>
void WithFault(const std::string& rule, Body&& body) {
  const Fault fault(rule);
  std::forward<Body>(body)();
  EXPECT_GT(fault.fired(), 0u) << "the rule \"" << rule << "\" matched " << fault.matched()
                               << " times and never fired";
}

// So many lines of the timeline stand in the message of a test that failed; a file has the rest.
inline constexpr size_t kTimelineLines = 60;

// How long the timeline was when the test failed first.
class FailureMark : public ::testing::EmptyTestEventListener {
 public:
  // In bytes; the timeline's end when no failure was seen.
  size_t bytes() const { return bytes_.value_or(SIZE_MAX); }
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    const int bytes = rdmaemu_timeline(nullptr, 0);
    if (result.failed() && !bytes_ && bytes >= 0) bytes_ = static_cast<size_t>(bytes);
  }

 private:
  std::optional<size_t> bytes_;
};

// Writes the text to a file of the running test and answers the file's path; empty: it cannot be
// written. Bazel keeps what stands in TEST_UNDECLARED_OUTPUTS_DIR.
inline std::string WriteTimelineFile(const std::string& text) {
  const char* directory = nullptr;
  for (const char* name : {"TEST_UNDECLARED_OUTPUTS_DIR", "TMPDIR"}) {
    if (directory == nullptr) directory = std::getenv(name);
  }
  const ::testing::TestInfo& test = *::testing::UnitTest::GetInstance()->current_test_info();
  std::string file = std::string(test.test_suite_name()) + "." + test.name();
  for (char& letter : file) letter = letter == '/' ? '_' : letter;
  const std::string path = std::string(directory == nullptr ? "/tmp" : directory) +
                           "/rdmaemu-timeline-" + file + "-" + std::to_string(getpid()) + ".txt";
  std::ofstream out(path);
  out << text;
  out.close();
  return out ? path : std::string();
}

// kTimelineLines of the text, as many as possible on both sides of that byte.
inline std::string TimelineAround(const std::string& text, size_t byte) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line + "\n");
  if (lines.size() <= kTimelineLines) return text;
  size_t at = 0;
  for (size_t begun = 0; at < lines.size() && begun < byte; at++) begun += lines[at].size();
  const size_t first = std::min(at < kTimelineLines / 2 ? 0 : at - kTimelineLines / 2,
                                lines.size() - kTimelineLines);
  const std::string path = WriteTimelineFile(text);
  std::string shown =
      "[lines " + std::to_string(first + 1) + " to " + std::to_string(first + kTimelineLines) +
      " of " + std::to_string(lines.size()) +
      "; all of them: " + (path.empty() ? "no file could be written" : path) + "]\n";
  for (size_t i = 0; i < kTimelineLines; i++) shown += lines[first + i];
  return shown;
}

// A test with a host of its own: embedded, with the virtual clock. The hosts end after the members
// of classes that derive from it.
class EmbeddedTest : public ::testing::Test {
 protected:
  explicit EmbeddedTest(const EmbeddingOptions& options = {}) : host(options) {
    ::testing::UnitTest::GetInstance()->listeners().Append(mark_);
  }
  ~EmbeddedTest() override {
    if (HasFailure()) {
      ADD_FAILURE() << "what the host did, both sides (seconds, host, process, kind, object):\n"
                    << TimelineAround(Timeline(), mark_->bytes());
    }
    delete ::testing::UnitTest::GetInstance()->listeners().Release(mark_);
  }

  // Another machine: AddHost("b", {{.addresses = "10.0.0.2"}}).
  void AddHost(const std::string& name, const std::vector<DeviceOptions>& devices) {
    HostOptions options;
    options.name = name;
    options.devices = devices;
    host.Add(options);
  }
  // Does something on that machine, and answers what it answers: what is made in `body` is there.
  template <class Body>
  decltype(auto) On(const std::string& name, Body&& body) {
    const OnHost guard(name);
    return std::forward<Body>(body)();
  }

  Embedding host;

 private:
  FailureMark* const mark_ = new FailureMark;  // GoogleTest's, when a test calls exit
};

}  // namespace rdmaemu::testing
