#include "emulator/runtime/call_pages.h"

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>

namespace rdmaemu::runtime {
namespace {

// A process's side of its pages, with its own mapping.
class Caller {
 public:
  Caller(MemfdSegments& segments, SegmentId segment) {
    void* const bytes = mmap(nullptr, sizeof(CallPageSet), PROT_READ | PROT_WRITE, MAP_SHARED,
                             segments.Descriptor(segment), 0);
    if (bytes != MAP_FAILED) set_ = static_cast<CallPageSet*>(bytes);
  }
  ~Caller() { munmap(set_, sizeof(CallPageSet)); }
  Caller(const Caller&) = delete;

  // Returns true if the caller must ring the host's doorbell.
  bool Ask(uint32_t op, uint32_t size = 0, uint32_t number = 0) {
    set_->NoteUse(number);
    page(number).call = {op, size};
    return page(number).Ask();
  }
  void NoteUse(uint32_t number) { set_->NoteUse(number); }
  bool Answered(uint32_t number = 0) { return page(number).State() == CallPage::kAnswered; }
  CallPage& page(uint32_t number = 0) { return set_->pages[number]; }

 private:
  CallPageSet* set_ = nullptr;
};

class CallPagesTest : public testing::Test {
 protected:
  Caller& NewCaller(uint32_t connection) {
    const Result<SegmentId> segment = pages_.Share(connection);
    return *callers_.emplace_back(std::make_unique<Caller>(segments_, *segment));
  }
  // Answers with the call's op as errno, and records the caller. Delays the reply to op kLate.
  auto Serve() {
    return [this](uint32_t connection, uint32_t page, std::span<const std::byte> message) {
      CallHeader header;
      std::memcpy(&header, message.data(), sizeof header);
      served_.push_back(connection);
      served_page_ = page;
      last_message_bytes_ = message.size();
      if (header.op == kLate) return std::optional<Reply>();
      return std::optional<Reply>(Reply{static_cast<int>(header.op), body_, {}});
    };
  }

  // One scan of the host, as in CallServer.
  bool Look() { return pages_.FindAsked() && pages_.Serve(Serve()).any; }
  void Rang(uint32_t connection) {
    pages_.Rang(connection, Serve());
    Look();
  }

  // The host then watches the connection's first page.
  void WatchFirst(Caller& caller, uint32_t connection) {
    caller.Ask(0);
    Rang(connection);
    served_.clear();
  }

  static constexpr uint32_t kLate = 99;
  MemfdSegments segments_;
  CallPages pages_{segments_};
  std::vector<std::unique_ptr<Caller>> callers_;
  std::vector<uint32_t> served_;
  uint32_t served_page_ = 0;  // the last one
  ReplyBody body_;
  size_t last_message_bytes_ = 0;
};

TEST_F(CallPagesTest, TheFirstCallRingsAndLaterOnesAreSeen) {
  Caller& caller = NewCaller(1);
  EXPECT_TRUE(caller.Ask(5));
  EXPECT_FALSE(Look()) << "not watched before it rang";
  Rang(1);
  EXPECT_TRUE(caller.Answered());
  EXPECT_EQ(caller.page().reply.error, 5);
  EXPECT_FALSE(caller.Ask(6));
  EXPECT_TRUE(Look());
  EXPECT_EQ(caller.page().reply.error, 6);
}

TEST_F(CallPagesTest, AHostThatSleepsIsRung) {
  Caller& caller = NewCaller(1);
  WatchFirst(caller, 1);
  EXPECT_FALSE(pages_.StopWatching());
  EXPECT_TRUE(caller.Ask(5));
}

TEST_F(CallPagesTest, ACallThatCameBeforeTheHostSaidThatItSleepsKeepsItAwake) {
  Caller& caller = NewCaller(1);
  WatchFirst(caller, 1);
  EXPECT_FALSE(caller.Ask(5));
  EXPECT_TRUE(pages_.StopWatching());
  EXPECT_TRUE(Look());
  EXPECT_TRUE(caller.Answered());
}

TEST_F(CallPagesTest, AProcessThatIsQuietForLongIsNoLongerWatched) {
  Caller& caller = NewCaller(1);
  WatchFirst(caller, 1);
  for (uint32_t i = 0; i <= CallPages::kMaxEmptyLooks; i++) Look();
  EXPECT_TRUE(caller.Ask(5));
}

TEST_F(CallPagesTest, MoreProcessesThanAreWatchedAreAllServed) {
  const uint32_t count = 3 * CallPages::kMaxWatched;
  for (uint32_t i = 1; i <= count; i++) NewCaller(i);
  for (int round = 0; round < 3; round++) {
    for (uint32_t i = 0; i < count; i++) {
      if (callers_[i]->Ask(7)) Rang(i + 1);
    }
    Look();
    for (uint32_t i = 0; i < count; i++) EXPECT_TRUE(callers_[i]->Answered()) << i;
  }
  EXPECT_EQ(served_.size(), 3 * count);
}

TEST_F(CallPagesTest, ThreadsOfAProcessCallOnPagesOfTheirOwn) {
  constexpr uint32_t kLast = CallPageSet::kPages - 1;
  Caller& caller = NewCaller(1);
  EXPECT_TRUE(caller.Ask(kLate, 0, 0));
  Rang(1);
  EXPECT_TRUE(caller.Ask(5, 0, kLast)) << "a page is watched after its first call";
  Rang(1);
  EXPECT_EQ(served_page_, kLast);
  EXPECT_FALSE(caller.Answered(0)) << "it waits, and the other thread does not";
  EXPECT_TRUE(caller.Answered(kLast));
  EXPECT_FALSE(caller.Ask(6, 0, kLast));
  EXPECT_TRUE(Look());
  pages_.AnswerLate(1, kLast, Reply{7, {}, {}});
  EXPECT_EQ(caller.page(kLast).reply.error, 6) << "no call waits there";
  pages_.AnswerLate(1, CallPageSet::kPages, Reply{7, {}, {}});
  pages_.AnswerLate(1, 0, Reply{7, {}, {}});
  EXPECT_TRUE(caller.Answered(0));
  EXPECT_EQ(caller.page(0).reply.error, 7);
}

TEST_F(CallPagesTest, AllCallsOfAProcessThatRangAreServed) {
  Caller& caller = NewCaller(1);
  for (uint32_t i = 0; i < CallPageSet::kPages; i++) EXPECT_TRUE(caller.Ask(i, 0, i));
  Rang(1);
  for (uint32_t i = 0; i < CallPageSet::kPages; i++) {
    EXPECT_TRUE(caller.Answered(i));
    EXPECT_EQ(caller.page(i).reply.error, static_cast<int>(i));
  }
}

TEST_F(CallPagesTest, PagesWithoutCallsTakeNoMemory) {
  const auto bytes = [&] {
    struct stat status {};
    EXPECT_EQ(fstat(segments_.Descriptor(*pages_.Share(1)), &status), 0);
    return static_cast<size_t>(status.st_blocks) * 512;
  };
  Caller& caller = NewCaller(1);
  WatchFirst(caller, 1);
  const size_t of_one = bytes();
  EXPECT_LE(of_one, 2 * sizeof(CallPage));
  caller.Ask(5, 0, CallPageSet::kPages - 1);
  Rang(1);
  EXPECT_TRUE(caller.Answered(CallPageSet::kPages - 1));
  EXPECT_GT(bytes(), of_one);
}

TEST_F(CallPagesTest, AnImpossibleNumberOfUsedPagesIsCut) {
  Caller& caller = NewCaller(1);
  caller.NoteUse(UINT32_MAX - 1);
  EXPECT_TRUE(caller.Ask(5));
  Rang(1);
  EXPECT_TRUE(caller.Answered());
}

TEST_F(CallPagesTest, ASizeBeyondThePageIsCutAndLeftToTheHostToRefuse) {
  Caller& caller = NewCaller(1);
  caller.Ask(5, UINT32_MAX);
  Rang(1);
  EXPECT_EQ(last_message_bytes_, sizeof(CallHeader) + CallPage::kMaxInBytes);
  EXPECT_TRUE(caller.Answered());
}

TEST_F(CallPagesTest, AReplyBeyondThePageIsCut) {
  Caller& caller = NewCaller(1);
  body_.resize(CallPage::kMaxOutBytes + 1);
  caller.Ask(0);
  Rang(1);
  EXPECT_EQ(caller.page().reply.size, CallPage::kMaxOutBytes);
}

TEST_F(CallPagesTest, AnUnknownStateIsNoCall) {
  Caller& caller = NewCaller(1);
  WatchFirst(caller, 1);
  caller.page().state = 0xffffffff;
  EXPECT_FALSE(Look());
}

TEST_F(CallPagesTest, ARemovedConnectionIsForgotten) {
  Caller& caller = NewCaller(1);
  WatchFirst(caller, 1);
  pages_.Remove(1);
  caller.Ask(5);
  EXPECT_FALSE(Look());
  Rang(1);
  EXPECT_TRUE(served_.empty());
}

TEST_F(CallPagesTest, TheHostLearnsWhetherACallerAwaitsItsProcessor) {
  Caller& here = NewCaller(1);
  Caller& elsewhere = NewCaller(2);
  WatchFirst(here, 1);
  WatchFirst(elsewhere, 2);
  std::atomic_ref(here.page().caller_waits).store(CallPage::kYieldsHere);
  elsewhere.Ask(5);
  ASSERT_TRUE(pages_.FindAsked());
  EXPECT_FALSE(pages_.Serve(Serve()).awaits_processor);
  here.Ask(5);
  elsewhere.Ask(5);
  ASSERT_TRUE(pages_.FindAsked());
  EXPECT_TRUE(pages_.Serve(Serve()).awaits_processor);
}

TEST_F(CallPagesTest, ASleepingCallerIsWoken) {
  Caller& caller = NewCaller(1);
  caller.Ask(5);
  std::atomic_ref(caller.page().caller_waits).store(CallPage::kSleeps);
  std::thread waits([&] {
    while (!caller.Answered()) {
      syscall(SYS_futex, &caller.page().state, FUTEX_WAIT, CallPage::kAsked, nullptr, nullptr, 0);
    }
  });
  Rang(1);
  waits.join();
}

}  // namespace
}  // namespace rdmaemu::runtime
