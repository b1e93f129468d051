// The additions of rdma-core 60: rdma_resolve_addrinfo(3), rdma_query_addrinfo(3),
// rdma_write_cm_event(3) and their events. The names are looked up at run time, because an older
// library has none of them.
#include <dlfcn.h>
#include <netdb.h>

#include "tests/contract/support/direct.h"

namespace rdma_contract {
namespace {

// These are numbers because the enumeration of an older header lacks these values.
constexpr uint32_t kAddrinfoResolved = 16, kAddrinfoError = 17, kUser = 18, kInternal = 19;
constexpr int kSa = 0x10, kDns = 0x20;

rdma_cm_event_type Type(uint32_t event) { return static_cast<rdma_cm_event_type>(event); }

class Newer : public ConnectedTest {
 protected:
  void SetUp() override {
    Find("rdma_resolve_addrinfo", &resolve);
    Find("rdma_query_addrinfo", &query);
    Find("rdma_write_cm_event", &write);
    if (resolve == nullptr) GTEST_SKIP() << "librdmacm is older than rdma-core 60";
    ASSERT_NE(query, nullptr);
    ASSERT_NE(write, nullptr);
  }
  template <typename Function>
  static void Find(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlvsym(RTLD_DEFAULT, name, "RDMACM_1.4"));
  }
  static uint64_t ArgumentOf(const CmEvent& event) {
    uint64_t argument;
    memcpy(&argument, &event->param, sizeof argument);
    return argument;
  }
  AddrInfo Query(const CmId& id, int expected = 0) {
    rdma_addrinfo* info = nullptr;
    EXPECT_EQ(ErrnoOf(query(id.get(), &info)), expected);
    return AddrInfo(info);
  }
  rdma_addrinfo Numeric(int flags = 0) {
    rdma_addrinfo hints{};
    hints.ai_flags = RAI_NUMERICHOST | flags;
    hints.ai_port_space = RDMA_PS_TCP;
    return hints;
  }

  int (*resolve)(rdma_cm_id*, const char*, const char*, const rdma_addrinfo*) = nullptr;
  int (*query)(rdma_cm_id*, rdma_addrinfo**) = nullptr;
  int (*write)(rdma_cm_id*, rdma_cm_event_type, int, uint64_t) = nullptr;
};

// ---- events of the user's own

TEST_F(Newer, AUsersEventCarriesItsStatusAndArgument) {
  const CmId id = NewId(channel.get());
  ASSERT_EQ(ErrnoOf(write(id.get(), Type(kUser), 0x11223344, 0x55667788aabbccdd)), 0);
  const CmEvent event = NextEvent(channel.get());
  ASSERT_TRUE(event);
  EXPECT_EQ(event->id, id.get());
  EXPECT_EQ(event->event, kUser);
  EXPECT_EQ(event->status, 0x11223344);
  EXPECT_EQ(ArgumentOf(event), 0x55667788aabbccdd);
  EXPECT_STREQ(rdma_event_str(event->event), "RDMA_CM_EVENT_USER");
}

TEST_F(Newer, AUsersEventStandsBehindThoseBefore) {
  const CmId id = NewId(channel.get());
  ASSERT_EQ(ResolveTo(id.get(), here, 1), 0);
  ASSERT_TRUE(IsReadable(channel.get(), kPatience_ms));
  ASSERT_EQ(write(id.get(), Type(kUser), 0, 1), 0);
  ASSERT_EQ(write(id.get(), Type(kUser), 0, 2), 0);
  Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(ArgumentOf(NextEvent(channel.get())), 1u);
  EXPECT_EQ(ArgumentOf(NextEvent(channel.get())), 2u);
}

TEST_F(Newer, AUsersEventWakesAThreadThatWaits) {
  const CmId id = NewId(channel.get());
  std::future<rdma_cm_event_type> got = std::async(std::launch::async, [&] {
    rdma_cm_event* event = nullptr;
    EXPECT_EQ(rdma_get_cm_event(channel.get(), &event), 0);
    return CmEvent(event)->event;
  });
  EXPECT_TRUE(StillWaits(got));
  ASSERT_EQ(write(id.get(), Type(kUser), 0, 0), 0);
  EXPECT_EQ(got.get(), kUser);
}

TEST_F(Newer, AUsersEventMovesAndGoesWithItsId) {
  CmId id = NewId(channel.get());
  ASSERT_EQ(write(id.get(), Type(kUser), 0, 0), 0);
  ASSERT_EQ(rdma_migrate_id(id.get(), passive_channel.get()), 0);
  EXPECT_FALSE(IsReadable(channel.get()));
  EXPECT_TRUE(IsReadable(passive_channel.get()));
  id.reset();
  EXPECT_FALSE(IsReadable(passive_channel.get()));
}

TEST_F(Newer, OtherEventsAreNotTheUsersToWrite) {
  const CmId id = NewId(channel.get());
  for (const rdma_cm_event_type type : {RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_ADDR_RESOLVED,
                                        Type(kAddrinfoResolved), Type(kInternal)}) {
    EXPECT_EQ(ErrnoOf(write(id.get(), type, 0, 0)), EINVAL) << type;
  }
  EXPECT_FALSE(IsReadable(channel.get()));
}

// ---- names

TEST_F(Newer, AResolutionIsAnEventAndItsAnswerIsQueried) {
  const CmId id = NewId(channel.get());
  const rdma_addrinfo hints = Numeric();
  ASSERT_EQ(ErrnoOf(resolve(id.get(), here.c_str(), "7399", &hints)), 0);
  const CmEvent event = NextEvent(channel.get());
  ASSERT_TRUE(event);
  EXPECT_EQ(event->event, kAddrinfoResolved);
  EXPECT_EQ(event->status, 0);
  EXPECT_EQ(event->id, id.get());
  EXPECT_STREQ(rdma_event_str(event->event), "RDMA_CM_EVENT_ADDRINFO_RESOLVED");
  const AddrInfo info = Query(id), again = Query(id);
  ASSERT_TRUE(info && again);
  EXPECT_NE(info, again);
  ASSERT_EQ(info->ai_dst_len, sizeof(sockaddr_in));
  const sockaddr_in to = SocketAddress(here, 7399);
  EXPECT_EQ(memcmp(info->ai_dst_addr, &to, sizeof to), 0);
  EXPECT_EQ(info->ai_port_space, RDMA_PS_TCP);
  EXPECT_EQ(info->ai_qp_type, IBV_QPT_RC);
  // The resolution binds the id to no address.
  EXPECT_EQ(id->verbs, nullptr);
  EXPECT_EQ(ErrnoOf(rdma_resolve_addr(id.get(), nullptr, info->ai_dst_addr, 2000)), 0);
  Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
}

TEST_F(Newer, AFailedResolutionIsAnErrorEventAndHasNoAnswer) {
  const CmId id = NewId(channel.get());
  const rdma_addrinfo hints = Numeric(kDns);
  ASSERT_EQ(ErrnoOf(resolve(id.get(), "not a number", "7399", &hints)), 0);
  CmEvent event = NextEvent(channel.get());
  ASSERT_TRUE(event);
  EXPECT_EQ(event->event, kAddrinfoError);
  EXPECT_NE(event->status, 0);
  EXPECT_STREQ(rdma_event_str(event->event), "RDMA_CM_EVENT_ADDRINFO_ERROR");
  Query(id, ENODATA);
  event.reset();
  // A later resolution can succeed.
  ASSERT_EQ(ErrnoOf(resolve(id.get(), here.c_str(), "7399", &hints)), 0);
  event = NextEvent(channel.get());
  ASSERT_TRUE(event);
  EXPECT_EQ(event->event, kAddrinfoResolved);
  EXPECT_TRUE(Query(id));
}

TEST_F(Newer, ASynchronousIdWaitsForIt) {
  const CmId id = NewId(nullptr);
  const rdma_addrinfo hints = Numeric();
  ASSERT_EQ(ErrnoOf(resolve(id.get(), here.c_str(), "7399", &hints)), 0);
  ASSERT_NE(id->event, nullptr);
  EXPECT_EQ(id->event->event, kAddrinfoResolved);
  EXPECT_TRUE(Query(id));
  EXPECT_EQ(resolve(id.get(), "not a number", "7399", &hints), -1);
  EXPECT_EQ(id->event->event, kAddrinfoError);
}

TEST_F(Newer, AnIdMayGoWhileItsNameIsLookedUp) {
  for (int i = 0; i < 20; ++i) {
    const CmId id = NewId(channel.get());
    const rdma_addrinfo hints = Numeric();
    ASSERT_EQ(ErrnoOf(resolve(id.get(), here.c_str(), "7399", &hints)), 0);
  }
  EXPECT_FALSE(IsReadable(channel.get(), kQuiet_ms));
}

TEST_F(Newer, AnIdMayMigrateWhileItsNameIsLookedUp) {
  const CmId id = NewId(channel.get());
  const rdma_addrinfo hints = Numeric();
  ASSERT_EQ(ErrnoOf(resolve(id.get(), here.c_str(), "7399", &hints)), 0);
  ASSERT_EQ(rdma_migrate_id(id.get(), passive_channel.get()), 0);
  const CmEvent event = NextEvent(passive_channel.get());
  ASSERT_TRUE(event);
  EXPECT_EQ(event->event, kAddrinfoResolved);
  EXPECT_FALSE(IsReadable(channel.get()));
}

TEST_F(Newer, WithoutAResolutionThereIsNoAnswer) {
  const CmId id = NewId(channel.get());
  Query(id, ENODATA);
}

TEST_F(Newer, TheSubnetAdministratorIsInfinibands) {
  const CmId id = NewId(channel.get());
  rdma_addrinfo hints{};
  hints.ai_flags = kSa | kDns;
  EXPECT_EQ(ErrnoOf(resolve(id.get(), nullptr, "1", &hints)), EINVAL);
  hints.ai_flags = kSa;
  EXPECT_EQ(ErrnoOf(resolve(id.get(), nullptr, "1", &hints)), EINVAL);  // bound to no port
  ASSERT_EQ(BindTo(id.get(), here), 0);
  EXPECT_EQ(ErrnoOf(resolve(id.get(), here.c_str(), "1", &hints)), EINVAL);  // takes no node
  EXPECT_NE(resolve(id.get(), nullptr, "1", &hints), 0);
  EXPECT_FALSE(IsReadable(channel.get(), kQuiet_ms));
}

TEST_F(Newer, NothingAtAllIsInvalid) {
  const CmId id = NewId(channel.get());
  EXPECT_EQ(ErrnoOf(resolve(id.get(), nullptr, nullptr, nullptr)), EINVAL);
}

}  // namespace
}  // namespace rdma_contract
