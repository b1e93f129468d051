// Handles: a stale handle finds nothing, and the handles of several hosts of a program are
// disjoint.
#include "emulator/verbs/handle_table.h"

#include <gtest/gtest.h>

namespace rdmaemu {
namespace {

constexpr GroupId kGroup{1};

Handle Add(HandleTable& table) { return table.Insert(kGroup, std::make_unique<AddressHandle>()); }

TEST(HandleTable, AStaleHandleFindsNothing) {
  HandleTable table;
  const Handle first = Add(table);
  table.Erase(first);
  const Handle second = Add(table);
  EXPECT_NE(first, second);
  EXPECT_EQ(table.Find<AddressHandle>(kGroup, first), nullptr);
  EXPECT_NE(table.Find<AddressHandle>(kGroup, second), nullptr);
  EXPECT_EQ(table.Find<MemoryRegion>(kGroup, second), nullptr) << "of another kind";
  EXPECT_EQ(table.Find<AddressHandle>(GroupId{2}, second), nullptr) << "of another group";
}

// A slot's handles stay in their part and are never 0, however often the slot is reused.
TEST(HandleTable, HandlesStayInTheirPart) {
  for (uint32_t part = 0; part < IdSpace::kMaxParts; part++) {
    HandleTable table(IdSpace::Part(part));
    for (int i = 0; i < 1000; i++) {
      const Handle handle = Add(table);
      ASSERT_NE(handle, 0u);
      ASSERT_EQ(IdSpace::PartOf(handle), part);
      ASSERT_EQ(handle >> 31, 0u) << "a part's numbers are positive as int, too";
      ASSERT_NE(table.Find<AddressHandle>(kGroup, handle), nullptr);
      table.Erase(handle);
    }
  }
}

TEST(HandleTable, AnotherPartsHandleFindsNothing) {
  HandleTable first(IdSpace::Part(1)), second(IdSpace::Part(2));
  const Handle handle = Add(first);
  Add(second);
  EXPECT_NE(first.Find<AddressHandle>(kGroup, handle), nullptr);
  EXPECT_EQ(second.Find<AddressHandle>(kGroup, handle), nullptr);
}

}  // namespace
}  // namespace rdmaemu
