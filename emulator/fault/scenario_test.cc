#include "emulator/fault/scenario.h"

#include <gtest/gtest.h>

#include "emulator/fault/grammar.h"
#include "emulator/fault/rules.h"
#include "emulator/fault/words.h"

namespace rdmaemu::fault {
namespace {

const Vocabulary kVocabulary = {std::vector<std::string>{"reg_mr", "create_qp", "connect"},
                                std::vector<std::string>{"req", "rep", "rtu", "sidr_req"},
                                std::vector<std::string>{"established", "rejected"},
                                std::vector<std::string>{"send", "recv"},
                                AsyncEvents(),
                                std::vector<std::string>{"rc_send_only", "rc_acknowledge"},
                                std::vector<std::string>{},
                                std::vector<std::string>{"read", "write"},
                                std::vector<std::string>{}};
// The actions that a rule can have at any point, as messages list them.
const std::string kDeedsOfTime =
    "async, remove_device, port, remove_address, move_address, pkey, pause_ms, crash";
const std::string kDeeds = kDeedsOfTime + ", end_program";

Rule Good(std::string_view keys) {
  const auto rule = ParseRule(keys, 1, kVocabulary);
  if (!rule) {
    ADD_FAILURE() << rule.error();
    return {};
  }
  return *rule;
}
std::string Bad(std::string_view keys) {
  const auto rule = ParseRule(keys, 1, kVocabulary);
  return rule ? "" : rule.error();
}

TEST(Scenario, EveryKeyOfARule) {
  const Rule rule = Good(
      "name = \"r\", at = \"cm.req\", direction = \"receive\", host = \"a\", device = \"rxe0\","
      " local = \"127.0.0.1\", remote = \"fd00::/8\", service_port = 7471,"
      " from_ms = 10, until_ms = 20, after = \"r\","
      " nth = 3, every = 4, first = 5, times = 6, probability = 0.5, reject = 28,"
      " private_data = \"no\"");
  EXPECT_EQ(rule.name, "r");
  EXPECT_EQ(rule.point, Point::kCmMessage);
  EXPECT_EQ(rule.match.subjects, std::vector<std::string>{"req"});
  EXPECT_EQ(rule.match.direction, Direction::kReceive);
  EXPECT_EQ(rule.match.host, "a");
  EXPECT_EQ(rule.match.device, "rxe0");
  EXPECT_EQ(rule.match.local->address, NetAddress::Parse("127.0.0.1"));
  EXPECT_TRUE(rule.match.remote->Contains(*NetAddress::Parse("fd12::1")));
  EXPECT_EQ(rule.match.service_port, 7471);
  EXPECT_EQ(rule.match.from, std::chrono::milliseconds(10));
  EXPECT_EQ(rule.match.until, std::chrono::milliseconds(20));
  EXPECT_EQ(rule.match.after, "r");
  EXPECT_EQ(rule.frequency.nth, 3u);
  EXPECT_EQ(rule.frequency.every, 4u);
  EXPECT_EQ(rule.frequency.first, 5u);
  EXPECT_EQ(rule.frequency.times, 6u);
  EXPECT_EQ(rule.frequency.probability, 0.5);
  EXPECT_EQ(std::get<Reject>(rule.action), (Reject{28, {'n', 'o'}}));
}

TEST(Scenario, WhatSaysWhichCompletionsARuleMeans) {
  const Rule rule = Good(
      "at = \"wc.send\", program = \"rping\", qp = 17, qp_order = 2, min_bytes = 1,"
      " max_bytes = 4096, drop = true");
  EXPECT_EQ(rule.point, Point::kCompletion);
  EXPECT_EQ(rule.match.program, "rping");
  EXPECT_EQ(rule.match.qp, 17u);
  EXPECT_EQ(rule.match.qp_order, 2u);
  EXPECT_EQ(rule.match.min_bytes, 1u);
  EXPECT_EQ(rule.match.max_bytes, 4096u);
}

TEST(Scenario, WhatSaysWhichPacketsLinksAndBytesARuleMeans) {
  const Rule packet = Good("at = \"packet.rc_send_only\", index = 3, corrupt = true");
  EXPECT_EQ(packet.match.index, 3u);
  EXPECT_EQ(packet.match.direction, Direction::kReceive);
  EXPECT_EQ(packet.action, Action(Corrupt{}));
  EXPECT_EQ(Good("at = \"packet\", reorder = 2").action, Action(Reorder{2}));
  using std::chrono::milliseconds;
  const Rule link = Good(
      "at = \"link\", remote = \"10.0.0.0/8\", latency_ms = 5, jitter_ms = 2, rate_mbps = 10,"
      " queue_packets = 4, loss = 0.5, partition = true");
  EXPECT_FALSE(link.match.direction) << "both ways";
  EXPECT_EQ(link.action, Action(Link{true, milliseconds(5), milliseconds(2), 10, 4, 0.5}));
  const Rule memory =
      Good("at = \"memory.read\", mr_order = 2, address = 0x1000, length = 16, unmapped = true");
  EXPECT_EQ(memory.match.mr_order, 2u);
  EXPECT_EQ(memory.match.memory->address, 0x1000u);
  EXPECT_EQ(memory.match.memory->length, 16u);
  EXPECT_EQ(memory.action, Action(Unmap{}));
}

TEST(Scenario, AMessageIsMeantWhereItArrivesUnlessTheRuleSaysWhereItIsSent) {
  EXPECT_EQ(Good("at = \"cm.req\", drop = true").match.direction, Direction::kReceive);
  EXPECT_EQ(Good("at = \"cm.req\", direction = \"send\", drop = true").match.direction,
            Direction::kSend);
  EXPECT_EQ(Good("at = \"call\", errno = \"EIO\"").match.direction, std::nullopt);
}

TEST(Scenario, EveryAction) {
  EXPECT_EQ(Good("at = \"cm\", drop = true").action, Action(Drop{}));
  for (const char* at : {"cm", "event", "wc.send", "async", "packet", "link"}) {
    EXPECT_EQ(Good("at = \"" + std::string(at) + "\", hold = true").action, Action(Hold{})) << at;
  }
  EXPECT_EQ(Good("at = \"call\", hold = true, takes_effect = true").action, Action(Hold{true}));
  EXPECT_EQ(Good("at = \"cm.rep\", delay_ms = 5").action,
            Action(Delay{std::chrono::milliseconds(5)}));
  EXPECT_EQ(Good("at = \"call.connect\", delay_ms = 5, takes_effect = true").action,
            Action(Delay{std::chrono::milliseconds(5), true}));
  EXPECT_EQ(Good("at = \"cm.rtu\", duplicate = 2").action, Action(Duplicate{2}));
  EXPECT_EQ(Good("at = \"cm.sidr_req\", reject = 2").action, Action(Reject{2, {}}));
  EXPECT_EQ(Good("at = \"call.reg_mr\", errno = \"ENOMEM\"").action,
            Action(FailCall{ENOMEM, false}));
  EXPECT_EQ(Good("at = \"call\", errno = \"EIO\", takes_effect = true").action,
            Action(FailCall{EIO, true}));
  EXPECT_EQ(Good("at = \"event.rejected\", status = -110").action, Action(ChangeEvent{{}, -110}));
  EXPECT_EQ(Good("at = \"event.established\", event = \"rejected\", status = 28").action,
            Action(ChangeEvent{1, 28}));
  EXPECT_EQ(Good("at = \"cm.req\", unreachable = -110").action, Action(Unreachable{-110}));
  EXPECT_EQ(Good("at = \"wc.send\", status = \"retry_exc_err\"").action,
            Action(ChangeCompletion{12, false}));
  EXPECT_EQ(Good("at = \"wc\", status = \"general_err\", keeps_state = true").action,
            Action(ChangeCompletion{21, true}));
  EXPECT_EQ(Good("at = \"event\", event = \"established\"").action, Action(ChangeEvent{0, {}}));
}

TEST(Scenario, ARuleWithoutAnActionIsAWitness) {
  for (const char* keys : {"at = \"cm.req\", nth = 3", "at = \"event.established\"",
                           "at = \"time\", at_ms = 5", "at = \"memory.read\""}) {
    EXPECT_EQ(Good(keys).action, Action(Pass{})) << keys;
  }
  EXPECT_EQ(Good("at = \"cm.req\"").match.direction, Direction::kReceive);
}

TEST(Scenario, WhatIsDoneToTheHostAtAnyMoment) {
  using std::chrono::milliseconds;
  const Rule rule = Good(
      "at = \"time\", at_ms = 50, repeat_ms = 100, remove_device = true, how = \"hardware\","
      " device = \"rxe0\", return_after_ms = 20");
  EXPECT_EQ(rule.match.at, milliseconds(50));
  EXPECT_EQ(rule.match.repeat, milliseconds(100));
  EXPECT_EQ(rule.match.device, "") << "it names what is removed";
  EXPECT_EQ(rule.action,
            Action(Deed(RemoveDevice{"rxe0", RemoveDevice::How::kHardware, milliseconds(20)})));
  EXPECT_EQ(Good("at = \"cm.req\", port = \"down\", device = \"rxe0\"").match.device, "rxe0");
  EXPECT_EQ(Good("at = \"call.connect\", port = \"up\"").action,
            Action(Deed(SetPort{"", true, {}})));
  EXPECT_EQ(Good("at = \"wc\", remove_address = \"10.0.0.1\"").action,
            Action(Deed(RemoveAddress{*NetAddress::Parse("10.0.0.1"), {}})));
  EXPECT_EQ(Good("at = \"event\", move_address = \"::1\", to_device = \"rxe1\"").action,
            Action(Deed(MoveAddress{"rxe1", *NetAddress::Parse("::1")})));
  EXPECT_EQ(Good("at = \"wc\", async = \"qp_fatal\"").action, Action(Deed(RaiseAsync{"", 1})));
  EXPECT_EQ(Good("at = \"async.port_err\", async = \"lid_change\"").action,
            Action(ChangeAsync{11}));
  EXPECT_EQ(Good("at = \"wc\", pause_ms = 5").action, Action(Deed(PauseHost{milliseconds(5)})));
  EXPECT_EQ(Good("at = \"wc\", pkey = 0x8001, pkey_index = 1, return_after_ms = 5").action,
            Action(Deed(SetPkey{"", 1, 0x8001, milliseconds(5)})));
  EXPECT_EQ(Good("at = \"time\", at_ms = 1, pkey = 0, device = \"rxe0\"").action,
            Action(Deed(SetPkey{"rxe0", 0, 0, {}})));
  EXPECT_EQ(Good("at = \"wc\", crash = true").action, Action(Deed(CrashHost{})));
}

TEST(Scenario, EndsAProgramWhereMomentsHaveOne) {
  using enum EndProgram::Which;
  for (const char* at : {"call", "cm.req", "event.established", "wc", "async.qp_fatal",
                         "packet.rc_send_only", "memory.read"}) {
    for (const auto& [word, which] : {std::pair("self", kSelf), std::pair("peer", kPeer)}) {
      const std::string action = std::string("end_program = \"") + word + "\"";
      const Rule rule = Good("at = \"" + std::string(at) + "\", " + action);
      EXPECT_EQ(rule.action, Action(Deed(EndProgram{which}))) << at;
      EXPECT_EQ(ActionText(rule.action), action);
    }
  }
}

TEST(Scenario, AKeyMeansWhatSomeMomentsOfItsPointHave) {
  EXPECT_EQ(Good("at = \"cm\", service_port = 7471").match.service_port, 7471);
  EXPECT_EQ(Good("at = \"cm.sidr_req\", service_port = 7471").match.service_port, 7471);
  EXPECT_EQ(Good("at = \"call\", device = \"rxe0\", qp = 17").match.qp, 17u);
  EXPECT_EQ(Good("at = \"call.create_qp\", device = \"rxe0\"").match.device, "rxe0");
  EXPECT_EQ(Good("at = \"async.qp_fatal\", qp_order = 2").match.qp_order, 2u);
  const Rule removes = Good("at = \"call.connect\", remove_device = true, device = \"rxe0\"");
  EXPECT_EQ(removes.match.device, "") << "the call has none: it names what is removed";
  EXPECT_EQ(removes.action, Action(Deed(RemoveDevice{"rxe0", RemoveDevice::How::kProfile, {}})));
}

TEST(Scenario, AnActionsTextHasTheWordsOfTheGrammar) {
  EXPECT_EQ(ActionText(ChangeEvent{8, 28}), "event = \"rejected\", status = 28");
  EXPECT_EQ(ActionText(ChangeEvent{11, {}}), "event = \"device_removal\"");
  EXPECT_EQ(ActionText(ChangeEvent{{}, -110}), "status = -110");
  EXPECT_EQ(ActionText(ChangeCompletion{12, false}), "status = \"retry_exc_err\"");
  EXPECT_EQ(ActionText(ChangeAsync{1}), "async = \"qp_fatal\"");
}

struct Mistake {
  const char* keys;
  std::string error;  // the test replaces DEEDS by kDeeds, STATUSES by CompletionStatuses
};
class Mistakes : public testing::TestWithParam<Mistake> {};

TEST_P(Mistakes, GetsAMessageThatSaysWhereAndWhatWouldBeRight) {
  std::string error = GetParam().error;
  if (const size_t at = error.find("DEEDS"); at != error.npos) error.replace(at, 5, kDeeds);
  if (const size_t at = error.find("STATUSES"); at != error.npos) {
    error.replace(at, 8, Listed(CompletionStatuses()));
  }
  EXPECT_EQ(Bad(GetParam().keys), error);
}

const Mistake kMistakes[] = {
    {"at = \"cm.req\", drop",
     "rule:1:21: drop needs a value, as in key = true; the line is: at = \"cm.req\", drop"},
    {"at = \"cm.req\", drop true",
     "rule:1:21: drop needs a value, as in key = true; the line is: at = \"cm.req\", drop true"},
    {"drop = true", "rule:1:1: at is missing: name the place of the rule, such as \"cm.req\""},
    {"at = 5, drop = true",
     "rule:1:6: at must be a place, such as \"cm.req\", or a list of places"},
    {"at = \"\", drop = true",
     "rule:1:6: at must be a place, such as \"cm.req\", or a list of places"},
    {"at = [], drop = true", "rule:1:6: at has 1 to 16 places"},
    {"at = [\"cm.req\", 5], drop = true",
     "rule:1:17: at must be a place, such as \"cm.req\", or a list of places"},
    {"at = [\"cm.req\", \"cm.repp\"], drop = true",
     "rule:1:17: there is no \"cm.repp\"; did you mean \"cm.rep\"?"},
    {"at = \"cm.REQ\", drop = true", "rule:1:6: there is no \"cm.REQ\"; did you mean \"cm.req\"?"},
    {"at = \"call.ibv_reg_mr\", errno = 12",
     "rule:1:6: there is no \"call.ibv_reg_mr\"; did you mean \"call.reg_mr\"?"},
    {"at = \"call.RegMr\", errno = 12",
     "rule:1:6: there is no \"call.RegMr\"; did you mean \"call.reg_mr\"?"},
    {"at = \"call.rdma_connect\", errno = 12",
     "rule:1:6: there is no \"call.rdma_connect\"; did you mean \"call.connect\"?"},
    {"at = [\"cm.req\", \"wc.send\"], drop = true",
     "rule:1:17: all places of a rule are of one point, here \"cm\"; write another rule for this "
     "one"},
    {"at = [\"cm.req\", \"cm\"], drop = true",
     "rule:1:17: \"cm\" means every place of the point: write it alone"},
    {"at = [\"cm.req\", \"cm.rtu\"], unreachable = -110",
     "rule:1:42: unreachable is possible at: \"cm.req\", \"cm.rep\", \"cm.sidr_req\""},
    {"at = \"cm\", drop = true, name = \"a\\u0007\"",
     "rule:1:32: name must not have control characters"},
    {"at = \"cm\", drop = true, f\xef\xbb\xb7t = 1",
     "rule:1:26: is not an ASCII character; leave it out, or write it in a string as \\u and four "
     "hexadecimal digits"},
    {"at = \"cn.req\", drop = true",
     "rule:1:6: there is no point \"cn\"; did you mean \"cm.req\"?"},
    {"at = \"cn.rq\", drop = true", "rule:1:6: there is no point \"cn\"; did you mean \"cm\"?"},
    {"at = \"req\", drop = true", "rule:1:6: there is no point \"req\"; did you mean \"cm.req\"?"},
    {"at = \"rc.packet\", drop = true",
     "rule:1:6: there is no point \"rc\"; did you mean \"packet\"?"},
    {"at = \"time.now\", at_ms = 5", "rule:1:6: there is no \"time.now\"; did you mean \"time\"?"},
    {"at = \"port\"",
     "rule:1:6: there is no point \"port\"; it is a key of a rule and not a point, as are the "
     "actions on the host: " +
         kDeedsOfTime + "; at is one of: call, cm, event, wc, async, packet, link, memory, time"},
    {"at = \"device\"",
     "rule:1:6: there is no point \"device\"; it is a key of a rule and not a point, as are the "
     "actions on the host: " +
         kDeedsOfTime + "; at is one of: call, cm, event, wc, async, packet, link, memory, time"},
    {"at = \"drop\"",
     "rule:1:6: there is no point \"drop\"; it is a key of a rule and not a point; at is one of: "
     "call, "
     "cm, event, wc, async, packet, link, memory, time"},
    {"at = \"door\", drop = true",
     "rule:1:6: there is no point \"door\"; it is one of: call, cm, event, wc, async, packet, "
     "link, memory, time"},
    {"at = \"cm.reqq\", drop = true",
     "rule:1:6: there is no \"cm.reqq\"; did you mean \"cm.req\"?"},
    {"at = \"cm.rq\", drop = true", "rule:1:6: there is no \"cm.rq\"; did you mean \"cm.req\"?"},
    {"at = \"call.open_the_door\", errno = \"EIO\"",
     "rule:1:6: there is no \"call.open_the_door\"; it is one of: call.reg_mr, "
     "call.create_qp, call.connect"},
    {"at = \"event\", duplicate = 1",
     "rule:1:27: duplicate is not possible at \"event\"; there a rule can: drop, hold, delay_ms, "
     "status, event, DEEDS"},
    {"at = \"memory\", hold = true",
     "rule:1:23: hold is not possible at \"memory\"; there a rule can: unmapped, DEEDS"},
    {"at = \"time\", at_ms = 5, hold = true",
     "rule:1:32: hold is not possible at \"time\"; there a rule can: " + kDeedsOfTime},
    {"at = \"link\", hold = true, latency_ms = 5",
     "rule:1:40: latency_ms and hold are two actions; a rule has one"},
    {"at = \"wc\", hold = true, takes_effect = true",
     "rule:1:40: takes_effect belongs to errno, delay_ms, hold, at \"call\""},
    {"at = \"wc\", takes_effect = true",
     "rule:1:27: takes_effect belongs to errno, delay_ms, hold, at \"call\""},
    {"at = \"wc\", pkey = 65536", "rule:1:19: pkey must be an integer from 0 to 65535"},
    {"at = \"wc\", pkey = \"0x8001\"", "rule:1:19: pkey must be an integer from 0 to 65535"},
    {"at = \"wc\", pkey = 0x8001, pkey_index = -1",
     "rule:1:40: pkey_index must be an integer from 0 to 65535"},
    {"at = \"wc\", pkey_index = 1", "rule:1:25: pkey_index belongs to pkey"},
    {"at = \"event\", event = \"rejectet\"",
     "rule:1:23: there is no event \"rejectet\"; did you mean \"rejected\"?"},
    {"at = \"cm\", errno = \"EIO\"",
     "rule:1:20: errno is not possible at \"cm\"; there a rule can: drop, hold, delay_ms, "
     "duplicate, reject, unreachable, DEEDS"},
    {"at = \"call.reg_mr\", drop = true",
     "rule:1:28: drop is not possible at \"call.reg_mr\"; there a rule can: hold, "
     "delay_ms, errno, DEEDS"},
    {"at = \"cm\", drop = true, duplicate = 1",
     "rule:1:37: duplicate and drop are two actions; a rule has one"},
    {"at = \"cm\", drop = false", "rule:1:19: drop must be true"},
    {"at = \"cm\", drop = 1", "rule:1:19: drop must be true or false"},
    {"at = \"cm\", reject = 28",
     "rule:1:21: reject is possible at: \"cm.req\", \"cm.sidr_req\", \"cm.rep\", \"cm.rtu\""},
    {"at = \"cm.rtu\", unreachable = -110",
     "rule:1:30: unreachable is possible at: \"cm.req\", \"cm.rep\", \"cm.sidr_req\""},
    {"at = \"cm.req\", unreachable = 2",
     "rule:1:30: unreachable is the event's status, which is below 0: -110 for ETIMEDOUT; a "
     "status of SIDR comes by reject at \"cm.sidr_req\""},
    {"at = \"cm.req\", unreachable = -110, direction = \"receive\"",
     "rule:1:48: sends fail at the sender only: direction must be \"send\""},
    {"at = \"wc.send\", status = 12",
     "rule:1:26: status is a word and not a number; did you mean \"retry_exc_err\"?"},
    {"at = \"wc.send\", status = -110",
     "rule:1:26: status is a word and not a number; it is one of: STATUSES"},
    {"at = \"wc.send\", status = \"rnr_retry_exc_er\"",
     "rule:1:26: there is no completion status \"rnr_retry_exc_er\"; did you mean "
     "\"rnr_retry_exc_err\"?"},
    {"at = \"wc.write\", drop = true",
     "rule:1:6: there is no \"wc.write\"; it is one of: wc.send, wc.recv"},
    {"at = \"wc\", errno = \"EIO\"",
     "rule:1:20: errno is not possible at \"wc\"; there a rule can: drop, hold, delay_ms, "
     "duplicate, status, DEEDS"},
    {"at = \"wc\", drop = true, service_port = 7471",
     "rule:1:40: service_port does not apply at \"wc\"; the keys there are: host, program, "
     "device, qp, qp_order, min_bytes, max_bytes, from_ms, until_ms, after"},
    {"at = \"call.reg_mr\", errno = \"EIO\", index = 17",
     "rule:1:44: index does not apply at \"call.reg_mr\"; the keys there are: host, program, "
     "device, from_ms, until_ms, after"},
    {"at = \"call.create_qp\", errno = \"EIO\", qp_order = 2",
     "rule:1:50: qp_order does not apply at \"call.create_qp\"; the keys there are: host, "
     "program, "
     "device, from_ms, until_ms, after"},
    {"at = \"call.connect\", errno = \"EIO\", device = \"rxe0\"",
     "rule:1:46: device does not apply at \"call.connect\"; the keys there are: host, program, "
     "from_ms, until_ms, after"},
    {"at = \"cm.rep\", drop = true, service_port = 7471",
     "rule:1:44: service_port does not apply at \"cm.rep\"; the keys there are: host, direction, "
     "device, local, remote, from_ms, until_ms, after"},
    {"at = \"async.port_err\", drop = true, qp = 17",
     "rule:1:42: qp does not apply at \"async.port_err\"; the keys there are: host, program, "
     "device, "
     "from_ms, until_ms, after"},
    {"at = \"wc\", drop = true, qp = 16777216",
     "rule:1:30: qp must be an integer from 0 to 16777215"},
    {"at = \"wc\", drop = true, qp_order = 0",
     "rule:1:36: qp_order must be an integer from 1 to 4294967295"},
    {"at = \"wc\", drop = true, min_bytes = 8, max_bytes = 4",
     "rule:1:52: max_bytes is less than min_bytes: no message has such a size"},
    {"at = \"cm\", drop = true, from_ms = 8, until_ms = 8",
     "rule:1:49: until_ms is not after from_ms: there is no such time"},
    {"at = \"cm\", delay_ms = 5, takes_effect = true",
     "rule:1:41: takes_effect belongs to errno, delay_ms, hold, at \"call\""},
    {"at = \"wc\", drop = true, keeps_state = true", "rule:1:39: keeps_state belongs to status"},
    {"at = \"cm.req\", reject = -1", "rule:1:25: reject must be an integer from 0 to 65535"},
    {"at = \"cm.req\", reject = \"28\"", "rule:1:25: reject must be an integer from 0 to 65535"},
    {"at = \"cm.req\", reject = 28, private_data = 5",
     "rule:1:44: private_data must be a string of at most 148 bytes"},
    {"at = \"cm\", drop = true, private_data = \"x\"",
     "rule:1:40: private_data belongs to reject, event"},
    {"at = \"cm\", drop = true, takes_effect = true",
     "rule:1:40: takes_effect belongs to errno, delay_ms, hold, at \"call\""},
    {"at = \"call\", errno = \"ENOMEN\"",
     "rule:1:22: there is no errno \"ENOMEN\"; did you mean \"ENOMEM\"?"},
    {"at = \"call\", errno = 12",
     "rule:1:22: errno is a word and not a number; did you mean \"ENOMEM\"?"},
    {"at = \"event\", event = 1",
     "rule:1:23: event is a word and not a number; did you mean \"rejected\"?"},
    {"at = \"event\", event = 2",
     "rule:1:23: event is a word and not a number; it is one of: established, rejected"},
    {"at = \"cm\", port = \"\"", "rule:1:19: port must be a word; it is one of: down, up"},
    {"at = \"cm\", port = true", "rule:1:19: port must be a word; it is one of: down, up"},
    {"at = \"call\", errno = \"EIO\", takes_effect = 1",
     "rule:1:44: takes_effect must be true or false"},
    {"at = \"event\", status = \"x\"",
     "rule:1:24: status must be an integer of 32 bits: -errno, or a reject reason"},
    {"at = \"cm\", drop = true, direction = \"in\"",
     "rule:1:37: direction must be \"send\" or \"receive\""},
    {"at = \"cm\", drop = true, local = \"here\"",
     "rule:1:33: \"here\" is not an IPv4 or IPv6 address, or a network such as \"10.0.0.0/8\""},
    {"at = \"cm\", drop = true, remote = 7",
     "rule:1:34: remote must be a string of 1 to 128 bytes"},
    {"at = \"cm\", drop = true, service_port = 0",
     "rule:1:40: service_port must be an integer from 1 to 65535"},
    {"at = \"cm\", drop = true, service_port = 65536",
     "rule:1:40: service_port must be an integer from 1 to 65535"},
    {"at = \"link\"",
     "rule:1:1: the rule does nothing; at this point it can: hold, partition, latency_ms, "
     "rate_mbps, loss"},
    {"at = \"link\", crash = true",
     "rule:1:22: crash is not possible at \"link\"; there a rule can: hold, partition, "
     "latency_ms, rate_mbps, loss"},
    {"at = \"link\", loss = 1.5", "rule:1:21: loss must be a number above 0 and at most 1"},
    {"at = \"link\", loss = 0.1, jitter_ms = 5", "rule:1:38: jitter_ms belongs to latency_ms"},
    {"at = \"link\", rate_mbps = 0", "rule:1:26: rate_mbps must be an integer from 1 to 1000000"},
    {"at = \"packet.rc_send\", drop = true",
     "rule:1:6: there is no \"packet.rc_send\"; did you mean \"packet.rc_send_only\"?"},
    {"at = \"packet\", reorder = 0", "rule:1:26: reorder must be an integer from 1 to 65536"},
    {"at = \"cm.req\", onward = true, drop = true", "rule:1:25: onward belongs to nth"},
    {"at = \"memory\", length = 5, unmapped = true", "rule:1:25: length belongs to address"},
    {"at = \"memory\", drop = true",
     "rule:1:23: drop is not possible at \"memory\"; there a rule can: unmapped, DEEDS"},
    {"at = \"time\", at_ms = 5, drop = true",
     "rule:1:32: drop is not possible at \"time\"; there a rule can: " + kDeedsOfTime},
    {"at = \"time\", port = \"down\"",
     "rule:1:1: at_ms is missing: when the time has come, such as at_ms = 50"},
    {"at = \"time\", at_ms = -1, port = \"down\"",
     "rule:1:22: at_ms must be an integer from 0 to 1000000000"},
    {"at = \"time\", at_ms = 1, repeat_ms = 0, port = \"down\"",
     "rule:1:37: repeat_ms must be an integer from 1 to 1000000000"},
    {"at = \"cm\", at_ms = 1, drop = true",
     "rule:1:20: at_ms does not apply at \"cm\"; the keys there are: host, direction, device, "
     "local, remote, service_port, from_ms, until_ms, after"},
    {"at = \"memory\", device = \"rxe0\", unmapped = true",
     "rule:1:25: device does not apply at \"memory\"; the keys there are: host, program, "
     "mr_order, "
     "address, length, from_ms, until_ms, after"},
    {"at = \"cm.req\", port = \"left\"",
     "rule:1:23: there is no state of a port \"left\"; it is one of: down, up"},
    {"at = \"cm.req\", remove_device = false", "rule:1:32: remove_device must be true"},
    {"at = \"cm.req\", remove_device = true, how = \"softly\"",
     "rule:1:44: there is no way to remove a device \"softly\"; it is one of: profile, rxe, "
     "hardware"},
    {"at = \"cm.req\", port = \"down\", how = \"rxe\"", "rule:1:37: how belongs to remove_device"},
    {"at = \"cm.req\", crash = true, return_after_ms = 5",
     "rule:1:48: return_after_ms belongs to remove_device, port, remove_address, pkey"},
    {"at = \"cm.req\", end_program = \"other\"",
     "rule:1:30: there is no program to end \"other\"; it is one of: self, peer"},
    {"at = \"time\", at_ms = 5, end_program = \"self\"",
     "rule:1:39: end_program is not possible at \"time\"; there a rule can: " + kDeedsOfTime},
    {"at = \"cm.req\", remove_address = \"10.0.0.0/8\"",
     "rule:1:33: \"10.0.0.0/8\" is not an IPv4 or IPv6 address"},
    {"at = \"cm.req\", move_address = \"10.0.0.1\"",
     "rule:1:31: move_address needs to_device, the name of the new device of the address"},
    {"at = \"cm.req\", pause_ms = 5, crash = true",
     "rule:1:38: crash and pause_ms are two actions; a rule has one"},
    {"at = \"async.qp_fatal\", async = \"cq_err\"",
     "rule:1:32: \"qp_fatal\" is of another kind of object than \"cq_err\"; it can become: "
     "qp_fatal, qp_req_err, qp_access_err, comm_est, sq_drained, path_mig, path_mig_err, "
     "qp_last_wqe_reached"},
    {"at = \"async\", async = \"cq_err\"",
     "rule:1:23: the new type depends on the old type of the event: name the old type in at, such "
     "as "
     "\"async.qp_fatal\""},
    {"at = \"wc\", async = \"wq_fatal\"",
     "rule:1:20: no device here has work queues (ibv_wq), of which wq_fatal would be"},
    {"at = \"wc\", async = \"qp_fatl\"",
     "rule:1:20: there is no asynchronous event \"qp_fatl\"; did you mean \"qp_fatal\"?"},
    {"at = \"async.qp_fatal\", duplicate = 2",
     "rule:1:36: duplicate is not possible at \"async.qp_fatal\"; there a rule can: drop, "
     "hold, delay_ms, DEEDS"},
    {"at = \"cm\", drop = true, qpn = 17",
     "rule:1:31: \"qpn\" is not a key of a rule; did you mean \"qp\"?"},
    {"at = \"cm\", drop = true, nth = 0",
     "rule:1:31: nth must be an integer from 1 to 9223372036854775807"},
    {"at = \"cm\", drop = true, every = 1.5",
     "rule:1:33: every must be an integer from 1 to 9223372036854775807"},
    {"at = \"cm\", drop = true, first = \"2\"",
     "rule:1:33: first must be an integer from 1 to 9223372036854775807"},
    {"at = \"cm\", drop = true, times = -1",
     "rule:1:33: times must be an integer from 1 to 9223372036854775807"},
    {"at = \"cm\", drop = true, probability = 0",
     "rule:1:39: probability must be a number above 0 and at most 1"},
    {"at = \"cm\", drop = true, probability = 1.01",
     "rule:1:39: probability must be a number above 0 and at most 1"},
    {"at = \"cm\", drop = true, from_ms = -1",
     "rule:1:35: from_ms must be an integer from 0 to 1000000000"},
    {"at = \"cm\", delay_ms = 1000000001",
     "rule:1:23: delay_ms must be an integer from 0 to 1000000000"},
    {"at = \"cm\", duplicate = 65", "rule:1:24: duplicate must be an integer from 1 to 64"},
    {"at = \"cm\", drop = true, nht = 3",
     "rule:1:31: \"nht\" is not a key of a rule; did you mean \"nth\"?"},
    {"at = \"cm\", drop = true, name = \"\"", "rule:1:32: name must be a string of 1 to 128 bytes"},
};
INSTANTIATE_TEST_SUITE_P(All, Mistakes, testing::ValuesIn(kMistakes));

std::string BadFile(std::string_view text) {
  const auto rules = ParseScenario(text, "s.toml", kVocabulary);
  return rules ? "" : rules.error();
}

TEST(Scenario, AFileHasRulesInItsOrder) {
  const auto rules = ParseScenario(
      "[[fault]]\nat = \"cm.req\"\nnth = 3\nreject = 28\n\n"
      "[[fault]]\nname = \"memory\"\nat = \"call.reg_mr\"\nerrno = \"ENOMEM\"\n",
      "s.toml", kVocabulary);
  ASSERT_TRUE(rules) << rules.error();
  ASSERT_EQ(rules->size(), 2u);
  EXPECT_EQ((*rules)[0].name, "rule 1");
  EXPECT_EQ((*rules)[1].name, "memory");
  EXPECT_TRUE(ParseScenario("", "s.toml", kVocabulary)->empty());
}

TEST(Scenario, AFilesMistakesHaveItsNameLineAndColumn) {
  EXPECT_EQ(BadFile("[[fault]]\nat = \"cm.req\"\nnth = 0\ndrop = true\n"),
            "s.toml:3:7: nth must be an integer from 1 to 9223372036854775807");
  EXPECT_EQ(BadFile("seed = 7\n"),
            "s.toml:1:8: \"seed\" is not part of a scenario, which is made of [[fault]] and "
            "[[program]] tables");
  EXPECT_EQ(BadFile("[fault]\nat = \"cm\"\n"),
            "s.toml:1:1: \"fault\" is not part of a scenario, which is made of [[fault]] and "
            "[[program]] tables");
  EXPECT_EQ(BadFile("[[fault]]\nname = \"a\"\nat = \"cm\"\ndrop = true\n[[fault]]\nat = \"cm\"\n"
                    "name = \"a\"\ndrop = true\n"),
            "s.toml:7:8: two rules are called \"a\"; the other is in line 2");
  EXPECT_EQ(BadFile("[[fault]]\nname = \"rule 2\"\nat = \"cm\"\n[[fault]]\nat = \"cm\"\n"),
            "s.toml:4:1: two rules are called \"rule 2\"; the other is in line 2");
  EXPECT_TRUE(BadFile("[[fault]\n").starts_with("s.toml:1:"));
  EXPECT_EQ(BadFile("[[fault]]\nat = \"cm\"\ndrop\nnth = 1\n"),
            "s.toml:3:5: drop needs a value, as in key = true; the line is: drop");
  EXPECT_EQ(BadFile("[[fault]]\nat = \"cm\"\ndrop"),
            "s.toml:3:5: drop needs a value, as in key = true; the line is: drop");
  EXPECT_EQ(BadFile(std::string(kMaxScenarioBytes + 1, '#')), "s.toml: is larger than 1 MiB");
}

TEST(Scenario, ARuleHasSeveralPlacesOfOnePoint) {
  const Rule rule = Good("at = [\"wc.send\", \"wc.recv\"], drop = true");
  EXPECT_EQ(rule.match.subjects, (std::vector<std::string>{"send", "recv"}));
  EXPECT_TRUE(rule.IsAt("send") && rule.IsAt("recv"));
  EXPECT_FALSE(rule.IsAt("rdma_read"));
  EXPECT_EQ(PlacesText(rule), "wc.send, wc.recv");
  EXPECT_EQ(Good("at = [\"cm.req\"], drop = true").match.subjects.size(), 1u);
  EXPECT_TRUE(Good("at = [\"cm\"], drop = true").match.subjects.empty());
  // A key is allowed when some of the places have it.
  EXPECT_EQ(Good("at = [\"cm.req\", \"cm.rep\"], service_port = 1, drop = true").match.service_port,
            1);
  // Places that do not fit into a list have a shorter text.
  std::string places = "\"cm.req\"";
  for (size_t i = 1; i < Match::kMaxSubjects; i++) places += ", \"cm.req\"";
  EXPECT_EQ(PlacesText(Good("at = [" + places + "], drop = true")), "cm.req and 15 more");
  EXPECT_EQ(Bad("at = [" + places + ", \"cm.req\"], drop = true"),
            "rule:1:6: at has 1 to 16 places");
}

std::string RulesFor(const std::string& host, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; i++) {
    text += "[[fault]]\nat = \"cm.req\"\ndrop = true\n";
    if (!host.empty()) text += "host = \"" + host + "\"\n";
  }
  return text;
}

TEST(Scenario, ARuleMoreThanAHostTakesIsRefused) {
  const auto parse = [](const std::string& text) {
    return ParseScenario(text, "s.toml", kVocabulary);
  };
  EXPECT_TRUE(parse(RulesFor("", Rules::kMaxRules)));
  EXPECT_TRUE(parse(RulesFor("a", Rules::kMaxRules) + RulesFor("b", Rules::kMaxRules)));
  const auto one_more = parse(RulesFor("", Rules::kMaxRules + 1));
  ASSERT_FALSE(one_more);
  EXPECT_EQ(one_more.error(),
            "s.toml:769:1: this is rule 257 of one host, which takes 256; at with a list of places "
            "may save some");
  EXPECT_FALSE(parse(RulesFor("a", Rules::kMaxRules) + RulesFor("b", 1) + RulesFor("", 1)));
  EXPECT_FALSE(parse(RulesFor("", Rules::kMaxRules) + RulesFor("a", 1)));
}

TEST(Scenario, ARuleHasAtMostSoManyBytes) {
  std::string rule = "at = \"cm\", drop = true";
  rule.append(kMaxRuleBytes - rule.size(), ' ');
  EXPECT_EQ(Bad(rule), "");
  EXPECT_EQ(Bad(rule + " "), RuleTooLong());
  EXPECT_NE(RuleTooLong().find("8192 bytes"), std::string::npos);
}

TEST(Scenario, ARuleIsAfterAnotherOfItsScenario) {
  const std::string gate = "[[fault]]\nname = \"gate\"\nat = \"cm\"\n";
  EXPECT_EQ(BadFile(gate + "[[fault]]\nname = \"cut\"\nat = \"wc\"\nafter = \"gate\"\n"), "");
  EXPECT_EQ(BadFile("[[fault]]\nname = \"cut\"\nat = \"wc\"\nafter = \"gate\"\n" + gate), "")
      << "whichever stands first";
  EXPECT_EQ(BadFile(gate + "[[fault]]\nname = \"cut\"\nat = \"wc\"\nafter = \"gat\"\n"),
            "s.toml:7:9: the scenario has no rule \"gat\"; did you mean \"gate\"?");
  EXPECT_EQ(BadFile(gate + "after = \"another\"\n"),
            "s.toml:4:9: the scenario has no rule \"another\"; it has no other rule");
}

TEST(Scenario, ARuleIsNotAfterItself) {
  EXPECT_EQ(BadFile("[[fault]]\nname = \"z\"\nat = \"cm\"\nafter = \"z\"\n"),
            "s.toml:4:9: a rule after itself would never fire");
  EXPECT_EQ(BadFile("[[fault]]\nat = \"cm\"\nafter = \"rule 1\"\n"),
            "s.toml:3:9: a rule after itself would never fire");
  EXPECT_EQ(BadFile("[[fault]]\nname = \"a\"\nat = \"cm\"\nafter = \"b\"\n"
                    "[[fault]]\nname = \"b\"\nat = \"cm\"\nafter = \"c\"\n"
                    "[[fault]]\nname = \"c\"\nat = \"cm\"\nafter = \"a\"\n"),
            "s.toml:4:9: rule \"b\" is after \"a\", itself or by others: none of them would ever "
            "fire");
}

TEST(Scenario, ARuleIsAfterAnotherOfItsHost) {
  const auto of_hosts = [](const std::string& gate, const std::string& cut) {
    return BadFile("[[fault]]\nname = \"gate\"\nat = \"cm\"\n" + gate +
                   "[[fault]]\nname = \"cut\"\nat = \"cm\"\nafter = \"gate\"\n" + cut);
  };
  const std::string srv = "host = \"srv\"\n", cli = "host = \"cli\"\n";
  const std::string other =
      "s.toml:8:9: rule \"gate\" applies to host \"srv\" only, and other hosts do not see its "
      "firings; a rule after it needs host = \"srv\" too";
  EXPECT_EQ(of_hosts(srv, srv), "");
  EXPECT_EQ(of_hosts("", cli), "") << "each host has the first";
  EXPECT_EQ(of_hosts(srv, cli), other);
  EXPECT_EQ(of_hosts(srv, ""), other) << "the other hosts take it too";
}

TEST(Scenario, ALineThatEndsItsTableEarlyIsNoRule) {
  EXPECT_NE(Bad("at = \"cm\", drop = true }\nother = { a = 1"), "");
}

}  // namespace
}  // namespace rdmaemu::fault
