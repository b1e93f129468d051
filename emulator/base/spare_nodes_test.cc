#include "emulator/base/spare_nodes.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <unordered_map>

namespace rdmaemu {
namespace {

TEST(SpareNodes, AMapsNextElementUsesTheMemoryOfARemovedOne) {
  std::map<int, std::string> map;
  SpareNodes<std::map<int, std::string>> spare;
  const std::string* const place = &spare.Insert(map, 1, "one")->second;
  spare.Insert(map, 2, "two");
  spare.Erase(map, 1);
  EXPECT_EQ(map, (std::map<int, std::string>{{2, "two"}}));
  EXPECT_EQ(&spare.Insert(map, 3, "three")->second, place);
  EXPECT_EQ(map, (std::map<int, std::string>{{2, "two"}, {3, "three"}}));
}

TEST(SpareNodes, ErasingReturnsTheNextElement) {
  std::set<int> set;
  SpareNodes<std::set<int>> spare;
  for (int i = 0; i < 3; i++) spare.Insert(set, i);
  EXPECT_EQ(*spare.Erase(set, set.begin()), 1);
  EXPECT_EQ(spare.Erase(set, set.find(2)), set.end());
  spare.Erase(set, 7);
  EXPECT_EQ(set, std::set{1});
}

TEST(SpareNodes, KeepsALimitedNumber) {
  using Map = std::unordered_map<size_t, size_t>;
  Map map;
  SpareNodes<Map> spare;
  for (size_t turn = 0; turn < 2; turn++) {
    for (size_t i = 0; i < 3 * SpareNodes<Map>::kMost; i++) spare.Insert(map, i, i + turn);
    for (size_t i = 0; i < 3 * SpareNodes<Map>::kMost; i++) {
      ASSERT_EQ(map.at(i), i + turn);
      spare.Erase(map, i);
    }
    EXPECT_TRUE(map.empty());
  }
}

}  // namespace
}  // namespace rdmaemu
