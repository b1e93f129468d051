// Many events of one channel at a time (rdma_get_cm_event(3)): their order, while ids are destroyed
// and migrated and while several threads fetch. More events wait than a host offers at a time.
#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/contract/support/direct.h"
#include "tests/contract/support/transport.h"

namespace rdma_contract {
namespace {

constexpr size_t kMany = 50;

class ManyEvents : public ConnectedTest {
 protected:
  // An id is destroyed before the channel that it moved to (rdma_destroy_event_channel(3)).
  ~ManyEvents() override { ids.clear(); }

  // Queues ADDR_RESOLVED for each of many ids, in order.
  void QueueMany() {
    for (size_t i = 0; i < kMany; i++) {
      ids.push_back(NewId(channel.get()));
      ASSERT_EQ(ResolveTo(ids.back().get(), here, 1), 0);
    }
    AwaitQueued();
  }
  // Addresses are resolved in the order of the calls, so the event of another channel is the last.
  void AwaitQueued() {
    const EventChannel marker = NewChannel();
    const CmId last = NewId(marker.get());
    ASSERT_EQ(ResolveTo(last.get(), here, 1), 0);
    Expect(marker.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
  }
  static rdma_cm_id* Resolved(const EventChannel& from) {
    const CmEvent event = Expect(from.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
    return event ? event->id : nullptr;
  }

  EventChannel other = NewChannel();
  std::vector<CmId> ids;
};

TEST_F(ManyEvents, ComeInTheirOrder) {
  ASSERT_NO_FATAL_FAILURE(QueueMany());
  for (const CmId& id : ids) {
    ASSERT_EQ(Resolved(channel), id.get());
    EXPECT_NE(id->verbs, nullptr) << "the fetch has filled the id";
  }
  EXPECT_FALSE(IsReadable(channel.get()));
}

TEST_F(ManyEvents, CommandsInAnotherOrderFollowTheFetches) {
  if (IsIwarp()) GTEST_SKIP() << "its routes are resolved at once";
  ASSERT_NO_FATAL_FAILURE(QueueMany());
  for (size_t i = 0; i < kMany; i++) ASSERT_EQ(Resolved(channel), ids[i].get());
  for (size_t i = kMany; i-- > 0;) ASSERT_EQ(ErrnoOf(rdma_resolve_route(ids[i].get(), 2000)), 0);
  for (size_t i = kMany; i-- > 0;) {
    ASSERT_EQ(Expect(channel.get(), RDMA_CM_EVENT_ROUTE_RESOLVED)->id, ids[i].get());
    EXPECT_EQ(ids[i]->route.num_paths, 1);
  }
}

TEST_F(ManyEvents, OfDestroyedIdsDoNotCome) {
  ASSERT_NO_FATAL_FAILURE(QueueMany());
  for (size_t i = 0; i < 5; i++) ASSERT_EQ(Resolved(channel), ids[i].get());
  for (size_t i = 0; i < kMany; i += 3) ids[i].reset();
  for (size_t i = 5; i < kMany; i++) {
    if (i % 3 != 0) {
      ASSERT_EQ(Resolved(channel), ids[i].get()) << i;
    }
    if (i % 5 == 0 && i + 1 < kMany && (i + 1) % 3 != 0) {
      ids[i + 1].reset();  // the next event
      i++;
    }
  }
  EXPECT_FALSE(IsReadable(channel.get()));
}

TEST_F(ManyEvents, OfMigratedIdsComeInTheirOrderOnTheNewChannel) {
  ASSERT_NO_FATAL_FAILURE(QueueMany());
  ASSERT_EQ(Resolved(channel), ids[0].get());
  for (size_t i = 2; i < kMany; i += 2) {
    ASSERT_EQ(ErrnoOf(rdma_migrate_id(ids[i].get(), other.get())), 0);
  }
  for (size_t i = 1; i < kMany; i++) {
    ASSERT_EQ(Resolved(i % 2 == 0 ? other : channel), ids[i].get()) << i;
  }
  EXPECT_FALSE(IsReadable(channel.get()));
  EXPECT_FALSE(IsReadable(other.get()));
}

TEST_F(ManyEvents, OfTwoChannelsComeOnTheirOwn) {
  std::vector<CmId> others;
  for (size_t i = 0; i < kMany; i++) {
    ids.push_back(NewId(channel.get()));
    others.push_back(NewId(other.get()));
    ASSERT_EQ(ResolveTo(ids.back().get(), here, 1), 0);
    ASSERT_EQ(ResolveTo(others.back().get(), here, 1), 0);
  }
  for (size_t i = 0; i < kMany; i++) {
    ASSERT_EQ(Resolved(channel), ids[i].get());
    ASSERT_EQ(Resolved(other), others[i].get());
  }
}

TEST_F(ManyEvents, ThreadsThatFetchAndDestroyGetEachOnce) {
  constexpr size_t kThreads = 4;
  std::map<rdma_cm_id*, CmId> owned;
  std::atomic<size_t> fetched = 0;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; i++) {
    threads.emplace_back([&] {
      while (fetched.fetch_add(1) < kThreads * kMany) {
        rdma_cm_id* const id = Resolved(channel);
        const std::lock_guard lock(mutex);
        EXPECT_EQ(owned.erase(id), 1u) << "an event came twice";
      }
    });
  }
  for (size_t i = 0; i < kThreads * kMany; i++) {
    CmId id = NewId(channel.get());
    rdma_cm_id* const key = id.get();
    const std::lock_guard lock(mutex);  // no id may be destroyed while a call uses it
    owned.emplace(key, std::move(id));
    EXPECT_EQ(ResolveTo(key, here, 1), 0);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(owned.empty());
}

}  // namespace
}  // namespace rdma_contract
