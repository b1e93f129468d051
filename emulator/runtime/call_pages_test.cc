#include "emulator/runtime/call_pages.h"

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>

namespace rdmaemu::runtime {
namespace {

// A process's side of its page, with its own mapping.
class Caller {
 public:
  Caller(MemfdSegments& segments, SegmentId segment) {
    void* const bytes = mmap(nullptr, sizeof(CallPage), PROT_READ | PROT_WRITE, MAP_SHARED,
                             segments.Descriptor(segment), 0);
    if (bytes != MAP_FAILED) page_ = static_cast<CallPage*>(bytes);
  }
  ~Caller() { munmap(page_, sizeof(CallPage)); }
  Caller(const Caller&) = delete;

  // Returns true if the caller must ring the host's doorbell.
  bool Ask(uint32_t op, uint32_t size = 0) {
    page_->call = {op, size};
    return page_->Ask();
  }
  bool Answered() { return page_->State() == CallPage::kAnswered; }
  CallPage& page() { return *page_; }

 private:
  CallPage* page_ = nullptr;
};

class CallPagesTest : public testing::Test {
 protected:
  Caller& NewCaller(uint32_t connection) {
    const Result<SegmentId> segment = pages_.Share(connection);
    return *callers_.emplace_back(std::make_unique<Caller>(segments_, *segment));
  }
  // Answers with the call's op as errno, and records the caller.
  auto Serve() {
    return [this](uint32_t connection, std::span<const std::byte> message) {
      CallHeader header;
      std::memcpy(&header, message.data(), sizeof header);
      served_.push_back(connection);
      last_message_bytes_ = message.size();
      return std::optional<Reply>(Reply{static_cast<int>(header.op), body_, {}});
    };
  }

  // One scan of the host, as in CallServer.
  bool Look() { return pages_.FindAsked() && pages_.Serve(Serve()); }
  void Rang(uint32_t connection) {
    pages_.Rang(connection, Serve());
    Look();
  }

  MemfdSegments segments_;
  CallPages pages_{segments_};
  std::vector<std::unique_ptr<Caller>> callers_;
  std::vector<uint32_t> served_;
  std::vector<std::byte> body_;
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
  Rang(1);
  EXPECT_FALSE(pages_.StopWatching());
  EXPECT_TRUE(caller.Ask(5));
}

TEST_F(CallPagesTest, ACallThatCameBeforeTheHostSaidThatItSleepsKeepsItAwake) {
  Caller& caller = NewCaller(1);
  Rang(1);
  EXPECT_FALSE(caller.Ask(5));
  EXPECT_TRUE(pages_.StopWatching());
  EXPECT_TRUE(Look());
  EXPECT_TRUE(caller.Answered());
}

TEST_F(CallPagesTest, AProcessThatIsQuietForLongIsNoLongerWatched) {
  Caller& caller = NewCaller(1);
  Rang(1);
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
  Rang(1);
  caller.page().state = 0xffffffff;
  EXPECT_FALSE(Look());
}

TEST_F(CallPagesTest, ARemovedConnectionIsForgotten) {
  Caller& caller = NewCaller(1);
  Rang(1);
  pages_.Remove(1);
  caller.Ask(5);
  EXPECT_FALSE(Look());
  Rang(1);
  EXPECT_TRUE(served_.empty());
}

TEST_F(CallPagesTest, ASleepingCallerIsWoken) {
  Caller& caller = NewCaller(1);
  caller.Ask(5);
  std::atomic_ref(caller.page().caller_sleeps).store(1);
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
