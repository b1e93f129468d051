// The schema for editors agrees with the grammar: the same keys, shapes and words.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "emulator/abi/calls.h"
#include "emulator/fault/grammar.h"
#include "emulator/fault/programs.h"
#include "emulator/fault/scenario.h"
#include "emulator/host/faults/host_faults.h"
#include "emulator/host/faults/words.h"

namespace rdmaemu {
namespace {

using Json = nlohmann::json;

Json KeysOfSchema() {
  std::ifstream file("docs/scenario.schema.json");
  const Json schema = Json::parse(file);
  return schema.at("properties").at("fault").at("items").at("properties");
}

std::string TypeOf(fault::Shape shape) {
  switch (shape) {
    case fault::Shape::kText:
      return "string";
    case fault::Shape::kInteger:
      return "integer";
    case fault::Shape::kNumber:
      return "number";
    case fault::Shape::kFlag:
      return "boolean";
    case fault::Shape::kTextOrInteger:
    case fault::Shape::kTextOrTexts:
      break;
  }
  return "";
}

std::set<std::string> WordsOf(const Json& key) {
  const Json& words = key.contains("enum") ? key.at("enum") : key.at("anyOf").at(1).at("enum");
  return words.get<std::set<std::string>>();
}
std::set<std::string> SetOf(const std::vector<std::string>& words) {
  return {words.begin(), words.end()};
}

TEST(ScenarioSchema, HasTheKeysOfTheGrammarAndTheirShapes) {
  const Json keys = KeysOfSchema();
  EXPECT_EQ(keys.size(), fault::Keys().size());
  for (const fault::Key& key : fault::Keys()) {
    const std::string name(key.name);
    ASSERT_TRUE(keys.contains(name)) << name;
    EXPECT_EQ(keys.at(name).value("type", ""), TypeOf(key.shape)) << name;
    EXPECT_FALSE(keys.at(name).value("description", "").empty()) << name;
  }
}

TEST(ScenarioExample, HasEveryKeyOfTheGrammarAndIsRight) {
  std::ifstream file("docs/scenario.example.toml");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto rules = fault::ParseScenario(text, "scenario.example.toml", FaultVocabulary());
  ASSERT_TRUE(rules) << rules.error();
  for (const fault::Key& key : fault::Keys()) {
    EXPECT_NE(text.find("\n" + std::string(key.name) + " = "), std::string::npos) << key.name;
  }
}

TEST(ScenarioSchema, HasThePrograms) {
  std::ifstream file("docs/scenario.schema.json");
  const Json programs = Json::parse(file).at("properties").at("program");
  EXPECT_EQ(programs.at("maxItems"), fault::kMaxPrograms);
  const Json& keys = programs.at("items").at("properties");
  EXPECT_EQ(keys.size(), 3u);
  EXPECT_EQ(keys.at("name").at("maxLength"), fault::kMaxProgramNameBytes);
  EXPECT_EQ(keys.at("command").at("maxLength"), fault::kMaxCommandBytes);
  for (const Json& word : keys.at("until").at("enum")) {
    EXPECT_TRUE(fault::UntilOf(word.get<std::string>())) << word;
  }
}

TEST(ScenarioSchema, HasTheWordsOfTheGrammar) {
  const Json keys = KeysOfSchema();
  std::set<std::string> places;
  for (const std::string& point : fault::PointNames()) {
    places.insert(point);
    const auto index = static_cast<size_t>(*fault::PointOf(point));
    for (const std::string& subject : FaultVocabulary()[index]) {
      places.insert(std::string(point) + "." + subject);
    }
  }
  EXPECT_EQ(WordsOf(keys.at("at")), places) << Json(places).dump();
  EXPECT_EQ(WordsOf(keys.at("status")), SetOf(fault::CompletionStatuses()));
  std::set<std::string> raised = SetOf(fault::AsyncEvents());
  raised.erase("wq_fatal");  // no object here can have this event
  EXPECT_EQ(WordsOf(keys.at("async")), raised);
  const auto events = static_cast<size_t>(fault::Point::kCmEvent);
  EXPECT_EQ(WordsOf(keys.at("event")), SetOf(FaultVocabulary()[events]));
}

// The host fills in the moments (call_target.h, cm.cc). The grammar lists which members each moment
// has.
TEST(Grammar, KnowsWhichCallsHaveADevice) {
  const auto calls = static_cast<size_t>(fault::Point::kCall);
  const fault::Key& device = *fault::FindKey("device");
  const fault::Key& qp = *fault::FindKey("qp");
  std::set<std::string> known;
  for (uint32_t op = 1; op <= static_cast<uint32_t>(CallOp::kCmCommand) + 64; op++) {
    const auto call = CallOp{op};
    const std::string subject = CallSubject(op);
    const std::vector<std::string>& words = FaultVocabulary()[calls];
    if (std::ranges::find(words, subject) == words.end()) continue;
    const bool has_device =
        (call >= CallOp::kOpenDevice && call < CallOp::kCmCreateChannel) || IsAsked(call);
    EXPECT_EQ(fault::CanStand(device, fault::Point::kCall, subject), has_device) << subject;
    if (!has_device) {
      EXPECT_FALSE(fault::CanStand(qp, fault::Point::kCall, subject)) << subject;
    }
    known.insert(subject);
  }
  EXPECT_EQ(known, SetOf(FaultVocabulary()[calls]));
}

TEST(Grammar, SuggestsTheCallOfAFunction) {
  const std::pair<std::string, std::string> kFunctions[] = {
      {"ibv_reg_mr", "reg_mr"},
      {"RegMr", "reg_mr"},
      {"ibv_get_device_list", "list_devices"},
      {"create_comp_channel", "create_channel"},
      {"rdma_create_event_channel", "cm_create_channel"},
      {"rdma_bind_addr", "bind"},
      {"rdma_join_multicast", "join_mcast"},
      {"rdma_leave_multicast", "leave_mcast"},
      {"rdma_get_cm_event", "get_event"},
      {"rdma_connect", "connect"},
  };
  for (const auto& [function, call] : kFunctions) {
    const auto rule = fault::ParseRule("at = \"call." + function + "\", errno = \"ENOMEM\"", 1,
                                       FaultVocabulary());
    ASSERT_FALSE(rule) << function;
    EXPECT_EQ(rule.error(), "rule:1:6: there is no \"call." + function +
                                "\"; did you mean \"call." + call + "\"?");
  }
}

}  // namespace
}  // namespace rdmaemu
