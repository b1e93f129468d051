#include "shim/client/host_moves.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <initializer_list>
#include <memory>
#include <optional>
#include <vector>

namespace rdmaemu::client {
namespace {

constexpr uint32_t kHere = 0, kElsewhere = 1;

class VainYieldsTest : public ::testing::Test {
 protected:
  // A host on another processor waits, and a doorbell is set.
  VainYieldsTest() {
    page_->turn.processor = kElsewhere + 1;
    page_->move = {.is_allowed = 1, .has_yielded = 1, .state = HostMove::kNone};
    (void)RingDoorbell(*page_, 4097);
  }
  // Returns true if the last one of as many yields moves the host.
  bool Yield(uint32_t count) {
    bool moves = false;
    for (uint32_t i = 0; i < count; i++) {
      EXPECT_FALSE(moves) << "before the last yield";
      moves = yields_.Count(*page_, kHere);
    }
    return moves;
  }

  std::unique_ptr<DoorbellPage> page_ = std::make_unique<DoorbellPage>();
  VainYields yields_;
};

TEST_F(VainYieldsTest, AThreadMovesAWaitingHostAfterSomeYields) {
  EXPECT_TRUE(Yield(VainYields::kBeforeMove));
  EXPECT_TRUE(Yield(VainYields::kBeforeMove)) << "counts anew";
  EXPECT_FALSE(Yield(VainYields::kBeforeMove - 1));
}

TEST_F(VainYieldsTest, AHostThatRanMeanwhileIsNotMoved) {
  EXPECT_FALSE(Yield(VainYields::kBeforeMove - 1));
  page_->move.has_yielded = 0;
  EXPECT_FALSE(Yield(1));
  page_->move.has_yielded = 1;
  EXPECT_FALSE(Yield(VainYields::kBeforeMove - 1));
  EXPECT_TRUE(Yield(1));
}

TEST_F(VainYieldsTest, NothingElseIsMoved) {
  const auto stays = [this](const char* why) {
    EXPECT_FALSE(Yield(2 * VainYields::kBeforeMove)) << why;
  };
  page_->summary[4097 / 64 / 64] = 0;
  stays("the host has taken all work");
  (void)RingDoorbell(*page_, 4098);
  page_->summary[4097 / 64 / 64] = 2;
  page_->host_asleep = 1;
  stays("a doorbell wakes up the host");
  page_->host_asleep = 0;
  page_->turn.processor = kHere + 1;
  stays("the host is here");
  page_->turn.processor = kElsewhere + 1;
  page_->move.is_allowed = 0;
  stays("the host does not allow it");
  page_->move.is_allowed = 1;
  page_->move.state = kHere + 1;
  stays("another thread moves the host");
  page_->move.state = HostMove::kNone;
  EXPECT_TRUE(Yield(VainYields::kBeforeMove));
}

constexpr uint32_t kOther = 5;  // a further processor

cpu_set_t SetOf(std::initializer_list<uint32_t> processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const uint32_t processor : processors) CPU_SET(processor, &set);
  return set;
}

bool IsSet(const cpu_set_t& set, std::initializer_list<uint32_t> processors) {
  const cpu_set_t wanted = SetOf(processors);
  return CPU_EQUAL(&set, &wanted);
}

class HostMoveTest : public ::testing::Test {
 protected:
  // Acts as the affinity of a host.
  struct Fake {
    bool Get(cpu_set_t& set) const {
      set = test.now_;
      return test.is_accessible_;
    }
    bool Set(const cpu_set_t& set) const {
      test.sets_.push_back(set);
      test.now_ = test.changes_to_ ? *test.changes_to_ : set;
      return test.may_set_;
    }
    HostMoveTest& test;
  };

  bool Move(uint32_t processor) { return MoveHost(move_, processor, Fake{*this}); }

  HostMove move_{.is_allowed = 1, .has_yielded = 1, .state = HostMove::kNone};
  cpu_set_t now_ = SetOf({kHere, kElsewhere});
  std::optional<cpu_set_t> changes_to_;  // by another process
  bool is_accessible_ = true, may_set_ = true;
  std::vector<cpu_set_t> sets_;
};

TEST_F(HostMoveTest, TheHostGoesToTheThreadsProcessorAndMayRunOnBoth) {
  EXPECT_TRUE(Move(kHere));
  ASSERT_EQ(sets_.size(), 2u);
  EXPECT_TRUE(IsSet(sets_[0], {kHere}));
  EXPECT_TRUE(IsSet(sets_[1], {kHere, kElsewhere}));
  EXPECT_EQ(move_.state, HostMove::kNone);
  EXPECT_TRUE(Move(kElsewhere));
  EXPECT_TRUE(IsSet(sets_.at(2), {kElsewhere})) << "the next move";
}

TEST_F(HostMoveTest, OneThreadMovesTheHost) {
  ASSERT_TRUE(BeginHostMove(move_, kElsewhere));
  EXPECT_EQ(TakeHostMove(move_), 0u) << "has not moved yet";
  EXPECT_TRUE(Move(kHere));
  EXPECT_TRUE(sets_.empty());
  EndHostMove(move_, kElsewhere);
  EXPECT_TRUE(Move(kHere));
  EXPECT_FALSE(sets_.empty());
}

TEST_F(HostMoveTest, TheHostUndoesWhatAThreadHasLeft) {
  ASSERT_TRUE(BeginHostMove(move_, kHere));
  HasMovedHost(move_, kHere);
  EXPECT_EQ(TakeHostMove(move_), kHere + 1);
  EXPECT_EQ(TakeHostMove(move_), 0u) << "taken";
  ASSERT_TRUE(BeginHostMove(move_, kElsewhere)) << "another thread";
  EndHostMove(move_, kHere);
  EXPECT_EQ(move_.state, kElsewhere + 1) << "does not end the move of that thread";
}

// taskset(1) on a host turns moves off.
TEST_F(HostMoveTest, AHostThatMayNotRunOnTwoProcessorsStays) {
  for (const cpu_set_t& set : {SetOf({kHere}), SetOf({kElsewhere}), SetOf({kElsewhere, kOther}),
                               SetOf({kHere, kElsewhere, kOther})}) {
    now_ = set;
    EXPECT_TRUE(Move(kHere));
    EXPECT_TRUE(sets_.empty());
    EXPECT_EQ(move_.state, HostMove::kNone);
  }
}

TEST_F(HostMoveTest, AnAffinityThatAnotherProcessSetsMeanwhileRemains) {
  changes_to_ = SetOf({kElsewhere});
  EXPECT_TRUE(Move(kHere));
  EXPECT_EQ(sets_.size(), 1u);
  EXPECT_TRUE(IsSet(now_, {kElsewhere}));
}

TEST_F(HostMoveTest, AHostThatCannotBeMovedIsReported) {
  may_set_ = false;
  EXPECT_FALSE(Move(kHere));
  EXPECT_EQ(move_.state, HostMove::kNone);
  is_accessible_ = false;
  EXPECT_FALSE(Move(kHere));
  EXPECT_EQ(move_.state, HostMove::kNone);
  EXPECT_FALSE(MoveHostTo(move_, kHere, 0)) << "a host in another pid namespace";
  EXPECT_FALSE(MoveHostTo(move_, CPU_SETSIZE, getpid()));
}

TEST_F(HostMoveTest, TheAffinityIsThatOfAProcess) {
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  cpu_set_t set, now;
  const HostAffinity affinity(child);
  ASSERT_TRUE(affinity.Get(set));
  EXPECT_GT(CPU_COUNT(&set), 0);
  uint32_t first = 0;
  while (!CPU_ISSET(first, &set)) first++;
  EXPECT_TRUE(affinity.Set(SetOf({first})));
  EXPECT_TRUE(affinity.Get(now));
  EXPECT_TRUE(IsSet(now, {first}));
  ASSERT_EQ(sched_getaffinity(0, sizeof now, &now), 0);
  EXPECT_TRUE(CPU_EQUAL(&set, &now)) << "the caller's affinity remains";
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(affinity.Get(set));
  EXPECT_FALSE(affinity.Set(SetOf({first})));
  EXPECT_FALSE(MoveHostTo(move_, kHere, child));
}

}  // namespace
}  // namespace rdmaemu::client
