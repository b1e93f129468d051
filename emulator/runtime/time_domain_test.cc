// Several hosts with one time. A host here has only the state that a time domain uses: busy or
// idle, a deadline, and datagram counts. Real time is a number that the tests choose.
#include "emulator/runtime/time_domain.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>

#include "emulator/runtime/shared_page.h"

namespace rdmaemu::runtime {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Kind = TimeDomain::Kind;

const NetAddress kA = *NetAddress::Parse("127.0.1.1"), kB = *NetAddress::Parse("127.0.1.2"),
                 kElsewhere = *NetAddress::Parse("192.0.2.1");

class Domain : public ::testing::Test {
 protected:
  explicit Domain(Kind kind = Kind::kVirtual) : kind_(kind) {
    char name[] = "/tmp/rdmaemu-time-XXXXXX";
    directory_ = mkdtemp(name);
    setenv("RDMAEMU_DIR", directory_.c_str(), 1);
    registry_.emplace(*Registry::Open());
  }
  ~Domain() override {
    std::filesystem::remove_all(directory_);
    unsetenv("RDMAEMU_DIR");
  }

  std::unique_ptr<TimeDomain> Join(const std::string& name, const NetAddress& address) {
    auto joined = TimeDomain::Join(*registry_, kind_, name, {address});
    if (!joined) throw std::runtime_error(joined.error());
    return std::move(*joined);
  }
  // Makes a host idle with a deadline `until` from now, or without one.
  TimeDomain::Answer Idle(TimeDomain& host, std::optional<Duration> until = {},
                          bool awaits = false) {
    std::optional<Time> deadline;
    if (until) deadline = host.At(real) + *until;
    return host.BecomeIdle(real, {deadline, awaits});
  }
  static bool IsWoken(TimeDomain& host) {
    pollfd wake{host.wake_fd(), POLLIN, 0};
    const bool woken = poll(&wake, 1, 0) == 1;
    host.TakeWake();
    return woken;
  }
  std::string File() const {
    return directory_ + (kind_ == Kind::kVirtual ? "/virtual.time" : "/manual.time");
  }

  Time real{hours(100)};
  Kind kind_;
  std::string directory_;
  std::optional<Registry> registry_;
};
using VirtualTime = Domain;

TEST_F(VirtualTime, BeginsAsTheRealOneAndRunsWithIt) {
  const auto a = Join("a", kA);
  EXPECT_EQ(a->At(real), real);
  EXPECT_EQ(a->At(real + seconds(5)), real + seconds(5));
  EXPECT_EQ(a->RealTime(seconds(5)), seconds(5));
}

TEST_F(VirtualTime, JumpsToTheDeadlineOfAHostThatIsAlone) {
  const auto a = Join("a", kA);
  EXPECT_TRUE(Idle(*a, seconds(99)).is_due);
  a->BecomeBusy();
  EXPECT_EQ(a->At(real), real + seconds(99));
}

TEST_F(VirtualTime, DoesNotJumpWhereNothingIsDue) {
  const auto a = Join("a", kA);
  EXPECT_FALSE(Idle(*a).is_due);
  a->BecomeBusy();
  EXPECT_EQ(a->At(real), real);
}

TEST_F(VirtualTime, DoesNotJumpWhileAnApplicationIsAwaited) {
  const auto a = Join("a", kA), b = Join("b", kB);
  EXPECT_FALSE(Idle(*a, seconds(99)).is_due);
  EXPECT_FALSE(Idle(*b, {}, true).is_due);
  a->BecomeBusy();
  EXPECT_EQ(a->At(real), real);
  // Virtual time also advances with real time.
  real += seconds(99);
  EXPECT_TRUE(Idle(*a, seconds(0)).is_due);
}

TEST_F(VirtualTime, StandsUntilEveryHostIsIdleAndThenWakesThoseThatAreDue) {
  const auto a = Join("a", kA), b = Join("b", kB);
  EXPECT_FALSE(Idle(*a, seconds(10)).is_due) << "b is busy";
  EXPECT_FALSE(Idle(*b, seconds(20)).is_due) << "a is due first";
  EXPECT_TRUE(IsWoken(*a));
  EXPECT_FALSE(IsWoken(*b));
  a->BecomeBusy();
  b->BecomeBusy();
  EXPECT_EQ(a->At(real), real + seconds(10));
  EXPECT_EQ(b->At(real), real + seconds(10));
}

// A host's sleep time was computed before the jump, so the host must be woken up.
TEST_F(VirtualTime, WakesThoseThatAreDueLaterToo) {
  const auto a = Join("a", kA), b = Join("b", kB), c = Join("c", kElsewhere);
  Idle(*a, seconds(10));
  Idle(*b, seconds(20));
  Idle(*c);
  EXPECT_TRUE(IsWoken(*a));
  EXPECT_TRUE(IsWoken(*b));
}

TEST_F(VirtualTime, WakesAHostWhoseDeadlineRealTimeHasReached) {
  const auto a = Join("a", kA), b = Join("b", kB);
  Idle(*a, seconds(10));
  real += seconds(10);
  EXPECT_FALSE(Idle(*b).is_due);
  EXPECT_TRUE(IsWoken(*a));
}

// A host that was stopped, or is not scheduled, has not looked at its deadline.
TEST_F(VirtualTime, DoesNotPassAHostThatHasNotLookedAtItsDeadline) {
  const auto a = Join("a", kA), b = Join("b", kB);
  Idle(*a, seconds(10));
  Idle(*b, seconds(20));  // moves time to a's deadline
  b->BecomeBusy();
  EXPECT_FALSE(Idle(*b, seconds(10)).is_due);
  b->BecomeBusy();
  EXPECT_EQ(b->At(real), real + seconds(10));
}

TEST_F(VirtualTime, DoesNotPassADatagramThatIsOnItsWay) {
  const auto a = Join("a", kA), b = Join("b", kB);
  Idle(*b);
  b->BecomeBusy();  // reads a's address
  Idle(*a);
  a->BecomeBusy();
  a->NoteSent(kB, 3);
  EXPECT_FALSE(Idle(*b).is_due);
  EXPECT_FALSE(Idle(*a, seconds(4)).is_due);
  b->BecomeBusy();
  b->NoteReceived(kA, 3);
  EXPECT_FALSE(Idle(*b).is_due);
  EXPECT_TRUE(IsWoken(*a));
  a->BecomeBusy();
  EXPECT_EQ(a->At(real), real + seconds(4));
}

TEST_F(VirtualTime, ADatagramIsLostWhenEveryHostHasLookedForItInVain) {
  const auto a = Join("a", kA), b = Join("b", kB);
  Idle(*a);
  Idle(*b);
  a->BecomeBusy();
  a->NoteSent(kB, 1);
  TimeDomain::Answer answer = Idle(*a, seconds(4));
  EXPECT_FALSE(answer.is_due);
  EXPECT_EQ(answer.look_again, TimeDomain::kTransit);
  real += TimeDomain::kTransit;
  a->BecomeBusy();
  EXPECT_FALSE(Idle(*a, seconds(4)).is_due) << "b has not looked";
  ASSERT_TRUE(IsWoken(*b));
  real += milliseconds(1);
  b->BecomeBusy();
  EXPECT_FALSE(Idle(*b).is_due);
  EXPECT_TRUE(IsWoken(*a));
  a->BecomeBusy();
  EXPECT_GE(a->At(real), real + seconds(4) - milliseconds(1));
}

TEST_F(VirtualTime, WhatComesAfterItWasTakenForLostDoesNotStopTimeForEver) {
  const auto a = Join("a", kA);
  a->NoteReceived(kA, 1);
  EXPECT_FALSE(Idle(*a, seconds(4)).is_due);
  real += TimeDomain::kTransit;
  a->BecomeBusy();
  EXPECT_TRUE(Idle(*a, seconds(4)).is_due);
}

TEST_F(VirtualTime, DatagramsToHostsOfAnotherTimeDoNotCount) {
  const auto a = Join("a", kA);
  a->NoteSent(kElsewhere, 1);
  EXPECT_TRUE(Idle(*a, seconds(4)).is_due);
}

TEST_F(VirtualTime, AnAddressThatComesLaterCountsFromThenOn) {
  const auto a = Join("a", kA);
  a->AddAddress(kB);
  a->NoteSent(kB, 1);
  EXPECT_FALSE(Idle(*a, seconds(4)).is_due);
  a->BecomeBusy();
  a->NoteReceived(kB, 1);
  a->RemoveAddress(kB);
  a->NoteSent(kB, 1);
  EXPECT_TRUE(Idle(*a, seconds(4)).is_due);
}

TEST_F(VirtualTime, AHostThatEndsHoldsNobodyUp) {
  const auto a = Join("a", kA);
  auto b = Join("b", kB);
  EXPECT_FALSE(Idle(*a, seconds(10)).is_due);
  b.reset();
  EXPECT_TRUE(IsWoken(*a));
  a->BecomeBusy();
  EXPECT_TRUE(Idle(*a, seconds(10)).is_due);
}

// As after SIGKILL: the child's descriptors are closed, and its slot keeps the last contents.
TEST_F(VirtualTime, AHostThatDiedHoldsNobodyUp) {
  const auto a = Join("a", kA);
  const pid_t child = fork();
  if (child == 0) {
    const auto b = Join("b", kB);
    b->NoteSent(kB, 5);
    _exit(b != nullptr ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_TRUE(Idle(*a, seconds(10)).is_due);
}

TEST_F(VirtualTime, AHostThatComesLaterSharesTheTime) {
  const auto a = Join("a", kA);
  Idle(*a, seconds(99));
  const auto b = Join("b", kB);
  EXPECT_EQ(b->At(real), real + seconds(99));
}

TEST_F(VirtualTime, BeginsAnewWhenNobodyWasLeft) {
  auto a = Join("a", kA);
  Idle(*a, seconds(99));
  a.reset();
  EXPECT_FALSE(std::filesystem::exists(File()));
  EXPECT_FALSE(std::filesystem::exists(registry_->WakePath("a")));
  EXPECT_EQ(Join("b", kB)->At(real), real);
}

TEST_F(VirtualTime, ThereIsAnEndToTheHostsThatShareIt) {
  std::vector<std::unique_ptr<TimeDomain>> hosts;
  for (size_t i = 0; i < TimeDomain::kMaxHosts; i++) {
    hosts.push_back(Join("h" + std::to_string(i), kA));
  }
  const auto one_more = TimeDomain::Join(*registry_, kind_, "more", {kB});
  ASSERT_FALSE(one_more);
  EXPECT_EQ(one_more.error(),
            "no more than 64 hosts can share one time; stop some of them, or give this one another"
            " RDMAEMU_DIR");
}

TEST_F(VirtualTime, AFileThatIsCutShortOrFilledWithAnythingStopsNobody) {
  const auto a = Join("a", kA);
  ASSERT_EQ(truncate(File().c_str(), 100), 0);
  EXPECT_FALSE(Idle(*a, seconds(1)).is_due);
  EXPECT_EQ(
      a->TakeDamage(),
      "another process has cut or overwritten " + File() +
          ", so time no longer jumps; end the programs and hosts that use this directory, and "
          "start them again");
  EXPECT_EQ(a->TakeDamage(), std::nullopt) << "once";
  a->BecomeBusy();
  EXPECT_EQ(a->At(real), real) << "time only runs";
  const int fd = open(File().c_str(), O_WRONLY | O_CLOEXEC);
  const std::string noise(32768, '\xff');
  ASSERT_EQ(write(fd, noise.data(), noise.size()), static_cast<ssize_t>(noise.size()));
  close(fd);
  EXPECT_FALSE(Idle(*a, seconds(1)).is_due);
  a->BecomeBusy();
  EXPECT_EQ(a->At(real), real);
  // The next host begins a new file.
  const auto b = Join("b", kB);
  EXPECT_TRUE(Idle(*b, seconds(1)).is_due);
}

// A debugger or SIGSTOP may stop it there. Its turn is taken over (shared_page.h).
TEST_F(VirtualTime, AMemberThatIsStoppedWithinItsChangeBlocksNobody) {
  const auto a = Join("a", kA);
  const int fd = open(File().c_str(), O_RDWR | O_CLOEXEC);
  {
    PageTurn stopped(fd);
    ASSERT_TRUE(stopped.Take());
    EXPECT_TRUE(Idle(*a, seconds(99)).is_due);
    const auto b = Join("b", kB);
    a->BecomeBusy();
    EXPECT_EQ(a->At(real), real + seconds(99));
    EXPECT_EQ(b->At(real), real + seconds(99));
  }
  close(fd);
}

TEST_F(VirtualTime, DoesNotJumpFurtherThanAYear) {
  const auto a = Join("a", kA);
  EXPECT_FALSE(Idle(*a, TimeDomain::kMaxMove + seconds(1)).is_due);
}

TEST_F(VirtualTime, CannotBeMoved) {
  const auto a = Join("a", kA);
  EXPECT_EQ(a->Advance(seconds(1)).error().code, EOPNOTSUPP);
  EXPECT_EQ(a->RunUntilIdle().error().code, EOPNOTSUPP);
}

class ProgramTime : public Domain {
 protected:
  ProgramTime() : Domain(Kind::kProgram) {}
  // One look of a member, which then waits.
  static TimeDomain::Answer Look(TimeDomain& member, bool did_work,
                                 std::optional<Time> deadline = {}) {
    return member.BecomeIdle({}, {deadline, false, did_work});
  }
};

// Its threads may have started another process after the look began.
TEST_F(ProgramTime, AProgramThatDidSomethingLooksOnceMoreBeforeTimeMoves) {
  const auto host = Join("a", kA);
  auto program = TimeDomain::JoinProgram(*registry_);
  ASSERT_TRUE(program);
  host->BecomeBusy();
  Look(*host, false, Time(seconds(5)));
  (*program)->BeginLook();
  Look(**program, true);
  EXPECT_TRUE(IsWoken(**program));
  EXPECT_TRUE(IsWoken(*host));
  host->BecomeBusy();
  Look(*host, false, Time(seconds(5)));
  EXPECT_EQ((host->BecomeBusy(), host->At({})), Time{});
  Look(*host, false, Time(seconds(5)));
  (*program)->BeginLook();
  Look(**program, false);
  EXPECT_EQ((host->BecomeBusy(), host->At({})), Time(seconds(5)));
}

class ManualTime : public Domain {
 protected:
  ManualTime() : Domain(Kind::kManual) {}
};

TEST_F(ManualTime, BeginsAtZeroAndStands) {
  const auto a = Join("a", kA);
  EXPECT_EQ(a->At(real), Time{});
  EXPECT_EQ(a->At(real + seconds(5)), Time{});
  EXPECT_EQ(a->RealTime(seconds(5)), Duration::max());
  EXPECT_FALSE(Idle(*a, seconds(1)).is_due);
  a->BecomeBusy();
  EXPECT_EQ(a->At(real), Time{});
}

TEST_F(ManualTime, MovesThroughEveryDeadlineToWhereItWasTold) {
  const auto a = Join("a", kA), b = Join("b", kB);
  ASSERT_TRUE(a->Advance(seconds(5)));
  EXPECT_TRUE(a->IsMoving());
  Idle(*b, seconds(2));
  EXPECT_FALSE(Idle(*a, seconds(3)).is_due) << "b is due first";
  EXPECT_TRUE(IsWoken(*b));
  b->BecomeBusy();
  EXPECT_EQ(b->At(real), Time(seconds(2)));
  Idle(*b);
  EXPECT_TRUE(IsWoken(*a));
  a->BecomeBusy();
  EXPECT_EQ(a->At(real), Time(seconds(3)));
  EXPECT_TRUE(a->IsMoving());
  EXPECT_FALSE(Idle(*a, seconds(9)).is_due);
  EXPECT_FALSE(a->IsMoving());
  a->BecomeBusy();
  EXPECT_EQ(a->At(real), Time(seconds(5)));
}

// A caller that advances time decides not to wait for the application.
TEST_F(ManualTime, MovesOverAnApplicationThatIsAwaited) {
  const auto a = Join("a", kA);
  ASSERT_TRUE(a->Advance(seconds(5)));
  EXPECT_TRUE(Idle(*a, seconds(3), true).is_due);
}

TEST_F(ManualTime, TwoMovesAddUp) {
  const auto a = Join("a", kA);
  ASSERT_TRUE(a->Advance(seconds(5)));
  ASSERT_TRUE(a->Advance(seconds(2)));
  Idle(*a);
  a->BecomeBusy();
  EXPECT_EQ(a->At(real), Time(seconds(7)));
}

TEST_F(ManualTime, RunsUntilNothingIsDue) {
  const auto a = Join("a", kA);
  ASSERT_TRUE(a->RunUntilIdle());
  EXPECT_TRUE(Idle(*a, seconds(3)).is_due);
  a->BecomeBusy();
  EXPECT_TRUE(Idle(*a, seconds(60)).is_due);
  a->BecomeBusy();
  EXPECT_FALSE(Idle(*a).is_due);
  EXPECT_FALSE(a->IsMoving());
  a->BecomeBusy();
  EXPECT_EQ(a->At(real), Time(seconds(63)));
}

TEST_F(ManualTime, RunsUntilAnApplicationIsAwaited) {
  const auto a = Join("a", kA);
  ASSERT_TRUE(a->RunUntilIdle());
  EXPECT_FALSE(Idle(*a, seconds(3), true).is_due);
  EXPECT_FALSE(a->IsMoving());
  a->BecomeBusy();
  EXPECT_EQ(a->At(real), Time{});
}

TEST_F(ManualTime, MovesForwardAndNotTooFar) {
  const auto a = Join("a", kA);
  EXPECT_EQ(a->Advance(seconds(0)).error().code, EINVAL);
  EXPECT_EQ(a->Advance(seconds(-1)).error().code, EINVAL);
  EXPECT_EQ(a->Advance(TimeDomain::kMaxMove + seconds(1)).error().code, EINVAL);
  EXPECT_TRUE(a->Advance(TimeDomain::kMaxMove));
}

}  // namespace
}  // namespace rdmaemu::runtime
