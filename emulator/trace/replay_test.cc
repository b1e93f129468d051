#include "emulator/trace/replay.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace rdmaemu::trace {
namespace {

// Returns one record. The time and the object differ from run to run.
std::string Line(int process, const std::string& kind, const std::string& what,
                 const std::string& more = "", const std::string& object = "id 3") {
  static int seconds = 0;
  return "{\"time\":" + std::to_string(++seconds) +
         ",\"host\":\"a\",\"process\":" + std::to_string(process) + ",\"kind\":\"" + kind +
         "\",\"object\":\"" + object + "\",\"what\":\"" + what + "\"" + more + "}\n";
}
std::string Call(int process, const std::string& what, int error = 0) {
  return Line(process, "call", what, ",\"errno\":" + std::to_string(error));
}
std::optional<Departure> Departs(const std::string& earlier, const std::string& later) {
  return FirstDeparture(*ParseRun(earlier), *ParseRun(later));
}

TEST(Replay, TimesAndNumbersOfObjectsDoNotCount) {
  EXPECT_FALSE(Departs(Line(1, "cm.event", "ESTABLISHED", ",\"status\":0", "id 3"),
                       Line(1, "cm.event", "ESTABLISHED", ",\"status\":0", "id 9")));
}

TEST(Replay, NamesTheRecordAndBothDecisions) {
  const auto departure = Departs(Call(1, "create_id") + Call(1, "bind_ip"),
                                 Call(1, "create_id") + Call(1, "bind_ip", 98));
  ASSERT_TRUE(departure);
  EXPECT_EQ(departure->line, 2u);
  EXPECT_EQ(departure->process, 1u);
  EXPECT_EQ(departure->earlier, "call bind_ip errno 0");
  EXPECT_EQ(departure->later, "call bind_ip errno 98");
}

TEST(Replay, ATraceWithTheNamesOfBeforeIsComparedByThePresentNames) {
  EXPECT_FALSE(Departs(Call(1, "Hello") + Call(1, "RegMr") + Call(1, "BIND_IP"),
                       Call(1, "hello") + Call(1, "reg_mr") + Call(1, "bind_ip")));
  EXPECT_FALSE(Departs(Call(1, "DestroyQp") + Call(1, "GET_EVENT"),
                       Call(1, "get_event") + Call(1, "destroy_qp")));
  EXPECT_TRUE(Departs(Call(1, "RegMr"), Call(1, "dereg_mr")));
  // Names of other kinds keep their letters.
  EXPECT_TRUE(Departs(Line(1, "cm.event", "ESTABLISHED"), Line(1, "cm.event", "established")));
}

TEST(Replay, TheOrderOfProcessesAmongEachOtherDoesNotCount) {
  EXPECT_FALSE(Departs(Call(1, "hello") + Call(2, "hello") + Call(1, "a") + Call(2, "b"),
                       Call(1, "hello") + Call(2, "hello") + Call(2, "b") + Call(1, "a")));
}

TEST(Replay, ProcessesAreNumberedInTheOrderInWhichTheyConnected) {
  EXPECT_FALSE(
      Departs(Call(1, "a") + Call(2, "b"), Call(4, "a") + Call(5, "host_status") + Call(7, "b")));
  EXPECT_TRUE(Departs(Call(1, "a") + Call(2, "b"), Call(1, "b") + Call(2, "a")));
}

// fault_wait is in the trace when the host answers at once, and is not when it waits.
TEST(Replay, WaitingForARuleIsNoDecision) {
  EXPECT_FALSE(Departs(Call(1, "a") + Call(2, "fault_wait") + Call(3, "clock") + Call(4, "b"),
                       Call(1, "a") + Call(2, "b")));
}

TEST(Replay, AFaultIsItsRule) {
  const std::string at = ",\"at\":\"cm.req\"";
  EXPECT_FALSE(Departs(Line(0, "fault", "drop", at, "lost"), Line(0, "fault", "drop", at, "lost")));
  const auto departure =
      Departs(Line(0, "fault", "drop", at, "lost"), Line(0, "fault", "drop", at, "other"));
  ASSERT_TRUE(departure);
  EXPECT_EQ(departure->earlier, "fault drop \"lost\" at cm.req");
}

TEST(Replay, ARunThatEndsEarlierLeavesWhereItsRecordsEnd) {
  const auto departure = Departs(Call(1, "a") + Call(1, "b"), Call(1, "a"));
  ASSERT_TRUE(departure);
  EXPECT_EQ(departure->line, 2u);
  EXPECT_EQ(departure->later, "");
}

TEST(Replay, ARunThatGoesOnLeavesAtTheEnd) {
  const auto departure = Departs(Call(1, "a"), Call(1, "a") + Call(1, "b"));
  ASSERT_TRUE(departure);
  EXPECT_EQ(departure->line, 0u);
  EXPECT_EQ(departure->earlier, "");
  EXPECT_EQ(departure->later, "call b errno 0");
}

TEST(Replay, TheFirstDepartureIsTheEarlierTraces) {
  const auto departure = Departs(Call(1, "a") + Call(2, "b") + Call(1, "c"),
                                 Call(1, "a") + Call(2, "X") + Call(1, "Y"));
  ASSERT_TRUE(departure);
  EXPECT_EQ(departure->line, 2u);
}

// Returns the first departure that RunFollower reports, and the number of the later run's line.
std::pair<size_t, std::optional<Departure>> DepartsAt(const std::string& earlier,
                                                      std::vector<std::string> later) {
  RunFollower follower(*ParseRun(earlier));
  for (size_t i = 0; i < later.size(); i++) {
    later[i].pop_back();  // the line's end
    const auto departure = follower.Take(later[i]);
    if (!departure || *departure) return {i + 1, departure.value_or(std::nullopt)};
  }
  return {0, std::nullopt};
}

TEST(Follower, TellsAtTheLineThatIsOtherwise) {
  const auto [line, departure] =
      DepartsAt(Call(1, "a") + Call(2, "b") + Call(1, "c"),
                {Call(7, "a"), Call(7, "c", 12), Call(9, "b"), Call(7, "d")});
  EXPECT_EQ(line, 2u);
  ASSERT_TRUE(departure);
  EXPECT_EQ(departure->line, 3u);
  EXPECT_EQ(departure->earlier, "call c errno 0");
  EXPECT_EQ(departure->later, "call c errno 12");
}

TEST(Follower, TellsAtTheLineThatIsOneMore) {
  const auto [line, departure] =
      DepartsAt(Call(1, "a") + Call(1, "b"), {Call(1, "a"), Call(1, "b"), Call(1, "c")});
  EXPECT_EQ(line, 3u);
  ASSERT_TRUE(departure);
  EXPECT_EQ(departure->line, 0u);
  EXPECT_EQ(departure->later, "call c errno 0");
}

TEST(Follower, SaysNothingOfWhatMayStillCome) {
  EXPECT_EQ(DepartsAt(Call(1, "a") + Call(2, "b"), {Call(1, "a")}).first, 0u);
  EXPECT_EQ(DepartsAt(Call(1, "a") + Call(2, "b"), {Call(1, "a"), Call(2, "b")}).first, 0u);
}

std::string Event(int process, const std::string& what) {
  return Line(process, "cm.event", what, ",\"status\":0");
}
std::string End(int process) { return Line(process, "process", "END", "", ""); }

TEST(Replay, FetchesAreComparedApartFromOtherCalls) {
  EXPECT_FALSE(Departs(Call(1, "get_event") + Call(1, "destroy_qp"),
                       Call(1, "destroy_qp") + Call(1, "get_event")));
  EXPECT_TRUE(Departs(Call(1, "get_event"), Call(1, "get_event", 4)));
  EXPECT_FALSE(Departs(Call(1, "get_event") + End(1), Call(1, "get_event", EBADF) + End(1)));
}

TEST(Replay, WhatReachesAProcessAfterItsEndInOneRunIsNotCompared) {
  const std::string first = Call(1, "disconnect"), event = Event(1, "DISCONNECTED");
  const std::string fetched = first + event + Call(1, "get_event") + End(1);
  EXPECT_FALSE(Departs(fetched, first + End(1)));
  EXPECT_FALSE(Departs(first + End(1), fetched));
  EXPECT_EQ(DepartsAt(first + End(1), {first, event}).first, 0u);
}

TEST(Replay, AProcessThatStillRunsMissesAnEvent) {
  const std::string first = Call(1, "disconnect"), event = Event(1, "DISCONNECTED");
  EXPECT_TRUE(Departs(first + event + End(1), first));
  EXPECT_TRUE(Departs(first, first + event + End(1)));
  EXPECT_EQ(DepartsAt(first, {first, event}).first, 2u);
}

TEST(Replay, TheHostsMessagesAfterTheEndOfAllProcessesAreNotCompared) {
  const std::string before = Call(1, "disconnect"), message = Line(0, "cm.receive", "DREP");
  EXPECT_FALSE(Departs(before + message + End(1), before + End(1)));
  EXPECT_EQ(DepartsAt(before + End(1), {before, message}).first, 0u);
  EXPECT_TRUE(Departs(before + message + End(1), before));
  EXPECT_TRUE(Departs(Line(0, "fault", "drop") + before + End(1), before + End(1)));
}

TEST(Replay, OtherEventsOrCallsBeforeTheEndAreCompared) {
  EXPECT_TRUE(Departs(Event(1, "ESTABLISHED") + End(1), Event(1, "REJECTED") + End(1)));
  EXPECT_TRUE(Departs(Call(1, "disconnect") + End(1), End(1)));
}

TEST(Replay, FindsTheSeed) {
  EXPECT_EQ(ParseRun(Line(0, "host", "START", ",\"seed\":\"7\""))->seed, "7");
  EXPECT_EQ(ParseRun(Call(1, "a"))->seed, "");
}

TEST(Replay, WhatIsNoTraceIsNamedByItsLine) {
  EXPECT_EQ(ParseRun(Call(1, "a") + "nonsense\n").error(), "line 2 is not a record of a trace");
  EXPECT_EQ(ParseRun("{\"kind\":7}\n").error(), "line 1 lacks the keys of a trace's record");
  EXPECT_EQ(ParseRun("[]").error(), "line 1 is not a record of a trace");
}

}  // namespace
}  // namespace rdmaemu::trace
