// Offers of events: what they contain, how a taken one counts, and what withdraws them.
#include "emulator/host/event_offers.h"

#include <gtest/gtest.h>

#include <bit>
#include <memory>
#include <vector>

#include "emulator/host/testing/event_fetch.h"
#include "emulator/host/testing/fault_world.h"

namespace rdmaemu::testing {
namespace {

constexpr uint32_t kDevices = 5;

HostConfig OfferingHost(const std::string& name, const std::string& address, uint64_t seed) {
  HostConfig config;
  config.name = name;
  config.seed = seed;
  config.programs_act_alone = true;
  HostAddress own;
  own.address = *NetAddress::Parse(address);
  config.devices.push_back({"rxe0", *BuiltInProfile("rxe"), {own}});
  return config;
}

class EventOffersTest : public ::testing::Test {
 protected:
  static constexpr uint16_t kPort = 7471;

  EventOffersTest()
      : server_host_(world_.AddHost(OfferingHost("server", "127.0.0.1", 1))),
        client_host_(world_.AddHost(OfferingHost("client", "127.0.0.2", 2))),
        server_client_(world_, server_host_, "server"),
        client_client_(world_, client_host_, "client"),
        server_(server_client_),
        client_(client_client_) {}

  static ProcessPage& PageOf(Client& client) {
    return *reinterpret_cast<ProcessPage*>(client.At(client.hello.process_page));
  }
  static OfferedEvents& OffersOf(Client& client) { return PageOf(client).offers; }
  static size_t OfferedTo(Client& client) { return OffersOf(client).Range().size(); }
  // Fetches an event as librdmacm does, with one sequence.
  void Fetch(CmProgram& program, const std::vector<std::byte>& sequence) {
    ASSERT_TRUE(world_.RunUntil([&] { return world_.counters.value(program.counter) > 0; },
                                std::chrono::seconds(1)));
    ASSERT_TRUE(world_.counters.Take(program.counter));
    const Reply reply = program.client.CallBytes(static_cast<uint32_t>(CallOp::kSequence),
                                                 sequence.data(), sequence.size());
    ASSERT_EQ(reply.error, 0);
  }
  void Fetch(CmProgram& program) { Fetch(program, EventFetch(program.channel, kDevices)); }
  // Takes the offered event, as a thread of the program does. Returns nothing when there is none.
  std::vector<std::byte> TakeOffer(CmProgram& program) {
    std::vector<std::byte> reply = TakeFrom(program.client, program.channel);
    if (!reply.empty()) {
      EXPECT_TRUE(world_.counters.Take(program.counter));
    }
    return reply;
  }
  static std::vector<std::byte> TakeFrom(Client& client, uint32_t channel,
                                         uint32_t devices = kDevices) {
    std::vector<std::byte> reply(kMaxSequenceOutBytes);
    reply.resize(OffersOf(client).Take(channel, devices, reply.data(), kMaxSequenceOutBytes));
    return reply;
  }
  static rdma_ucm_event_resp EventIn(std::span<const std::byte> reply) {
    rdma_ucm_event_resp event{};
    const std::vector<StepResult> results = ResultsIn(reply);
    if (!results.empty()) std::memcpy(&event, results[0].out.data(), results[0].header.size);
    return event;
  }
  // The id has fetched ADDR_RESOLVED, and ROUTE_RESOLVED is queued.
  uint32_t WithRouteResolved(CmProgram& program) {
    const uint32_t id = Resolved(program);
    program.Do(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 2000});
    EXPECT_TRUE(world_.RunUntil([&] { return world_.counters.value(program.counter) > 0; },
                                std::chrono::seconds(1)));
    return id;
  }
  uint32_t WithRouteResolved() { return WithRouteResolved(client_); }
  // Returns as many ids. An event of each is queued, in this order.
  std::vector<uint32_t> WithEvents(size_t count) {
    std::vector<uint32_t> ids = {WithRouteResolved()};
    while (ids.size() < count) {
      ids.push_back(client_.CreateId(RDMA_PS_TCP));
      client_.Do(RDMA_USER_CM_CMD_RESOLVE_IP,
                 rdma_ucm_resolve_ip{{}, Ipv4Socket("127.0.0.1", kPort), ids.back(), 2000});
      world_.Settle();
    }
    return ids;
  }
  uint32_t Resolved(CmProgram& program) {
    const uint32_t id = program.CreateId(RDMA_PS_TCP);
    program.Do(RDMA_USER_CM_CMD_RESOLVE_IP,
               rdma_ucm_resolve_ip{{}, Ipv4Socket("127.0.0.1", kPort), id, 2000});
    Fetch(program);
    return id;
  }
  void RequestConnection(uint32_t qp) {
    const uint32_t id = client_.CreateId(RDMA_PS_TCP);
    client_.Do(RDMA_USER_CM_CMD_RESOLVE_IP,
               rdma_ucm_resolve_ip{{}, Ipv4Socket("127.0.0.1", kPort), id, 2000});
    client_.Event();
    client_.Do(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 2000});
    client_.Event();
    rdma_ucm_conn_param parameters = CmProgram::Parameters();
    parameters.qp_num = qp;
    client_.Do(RDMA_USER_CM_CMD_CONNECT, rdma_ucm_connect{parameters, id, 0, {}});
  }
  uint32_t Destroy(uint32_t id) {
    const Reply reply = client_.Do(RDMA_USER_CM_CMD_DESTROY_ID, rdma_ucm_destroy_id{0, id, 0});
    rdma_ucm_destroy_id_resp out{};
    std::memcpy(&out, reply.body.data(), std::min(sizeof out, reply.body.size()));
    return out.events_reported;
  }

  World world_;
  Host &server_host_, &client_host_;
  Client server_client_, client_client_;
  CmProgram server_, client_;
};

TEST_F(EventOffersTest, TheOfferIsTheReplyToTheSameSequence) {
  WithRouteResolved();
  const auto offered = TakeOffer(client_);
  EXPECT_EQ(EventIn(offered).event, static_cast<uint32_t>(cm::EventType::kRouteResolved));
  const uint32_t other = Resolved(client_);
  EXPECT_TRUE(TakeOffer(client_).empty()) << "nothing is queued";
  client_.Do(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{other, 2000});
  const auto sequence = EventFetch(client_.channel, kDevices);
  const Reply reply = client_client_.CallBytes(static_cast<uint32_t>(CallOp::kSequence),
                                               sequence.data(), sequence.size());
  // Both replies differ only in the id.
  ASSERT_EQ(reply.body.size(), offered.size());
  EXPECT_EQ(EventIn(reply.body).id, other);
}

TEST_F(EventOffersTest, ATakenEventCountsAsReported) {
  const uint32_t id = WithRouteResolved();
  ASSERT_FALSE(TakeOffer(client_).empty());
  EXPECT_EQ(Destroy(id), 2u);
}

TEST_F(EventOffersTest, DestroyingAnIdWithdrawsItsEvent) {
  const uint32_t id = WithRouteResolved();
  EXPECT_EQ(Destroy(id), 1u);
  EXPECT_TRUE(TakeOffer(client_).empty());
  EXPECT_EQ(world_.counters.value(client_.counter), 0u);
}

TEST_F(EventOffersTest, AnOrdinaryFetchGetsTheOfferedEventOnce) {
  const uint32_t id = WithRouteResolved();
  EXPECT_EQ(client_.Next().event, static_cast<uint32_t>(cm::EventType::kRouteResolved));
  EXPECT_TRUE(TakeOffer(client_).empty());
  EXPECT_EQ(Destroy(id), 2u);
}

TEST_F(EventOffersTest, EventsAreOfferedInOrder) {
  const std::vector<uint32_t> ids = WithEvents(3);
  EXPECT_EQ(OfferedTo(client_client_), 3u);
  for (const uint32_t id : ids) EXPECT_EQ(EventIn(TakeOffer(client_)).id, id);
  EXPECT_TRUE(TakeOffer(client_).empty());
  for (const uint32_t id : ids) EXPECT_EQ(Destroy(id), 1u + (id == ids[0]));
}

TEST_F(EventOffersTest, MoreEventsThanPlacesAreOfferedWhenPlacesAreFree) {
  const std::vector<uint32_t> ids = WithEvents(2 * OfferedEvents::kSlots + 1);
  EXPECT_EQ(OfferedTo(client_client_), OfferedEvents::kSlots);
  for (size_t i = 0; i < ids.size(); i++) {
    if (i % OfferedEvents::kSlots == 0) world_.Settle();
    EXPECT_EQ(EventIn(TakeOffer(client_)).id, ids[i]) << i;
  }
}

TEST_F(EventOffersTest, OrdinaryFetchesAndOffersKeepTheOrder) {
  const std::vector<uint32_t> ids = WithEvents(OfferedEvents::kSlots + 2);
  for (size_t i = 0; i < ids.size(); i++) {
    const uint32_t id = i % 2 == 0 ? client_.Next().id : EventIn(TakeOffer(client_)).id;
    EXPECT_EQ(id, ids[i]) << i;
  }
}

TEST_F(EventOffersTest, DestroyingAnIdLeavesTheEventsOfOthersInOrder) {
  const std::vector<uint32_t> ids = WithEvents(5);
  EXPECT_EQ(EventIn(TakeOffer(client_)).id, ids[0]);
  EXPECT_EQ(Destroy(ids[2]), 0u);
  EXPECT_EQ(Destroy(ids[0]), 2u);
  EXPECT_EQ(OfferedTo(client_client_), 3u);
  for (const size_t i : {1, 3, 4}) EXPECT_EQ(EventIn(TakeOffer(client_)).id, ids[i]) << i;
  EXPECT_EQ(world_.counters.value(client_.counter), 0u);
}

TEST_F(EventOffersTest, AnEventBehindTheWithdrawnOneThatWasTakenIsReported) {
  const std::vector<uint32_t> ids = WithEvents(3);
  OfferedRange seen = OffersOf(client_client_).Range();
  const OfferedRange taken{seen.generation, static_cast<uint16_t>(seen.first + 2), seen.end};
  // A thread has taken two events, and the host has not seen this when it destroys the first id.
  ASSERT_TRUE(OffersOf(client_client_).Change(seen, taken));
  EXPECT_EQ(Destroy(ids[0]), 2u);
  EXPECT_EQ(Destroy(ids[1]), 1u);
  EXPECT_EQ(Destroy(ids[2]), 0u);
}

TEST_F(EventOffersTest, AThreadThatSawAWithdrawnOfferDoesNotTakeItsSuccessor) {
  const std::vector<uint32_t> ids = WithEvents(1);
  const OfferedRange seen = OffersOf(client_client_).Range();
  Destroy(ids[0]);
  const uint32_t other = Resolved(client_);
  client_.Do(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{other, 2000});
  world_.Settle();
  EXPECT_EQ(OfferedTo(client_client_), 1u);
  OfferedRange late = seen;
  EXPECT_FALSE(
      OffersOf(client_client_)
          .Change(late, {seen.generation, static_cast<uint16_t>(seen.first + 1), seen.end}));
}

TEST_F(EventOffersTest, ATakenRequestFreesItsPlaceInTheBacklog) {
  server_.Listen(RDMA_PS_TCP, "127.0.0.1", kPort, 1);
  RequestConnection(20);
  Fetch(server_);
  for (uint32_t qp = 21; qp < 24; qp++) {
    RequestConnection(qp);
    ASSERT_TRUE(world_.RunUntil([&] { return world_.counters.value(server_.counter) > 0; },
                                std::chrono::seconds(1)));
    EXPECT_EQ(EventIn(TakeOffer(server_)).event,
              static_cast<uint32_t>(cm::EventType::kConnectRequest))
        << qp;
  }
}

TEST_F(EventOffersTest, ACommandOnTheIdWithdrawsTheOffer) {
  const uint32_t id = WithRouteResolved();
  const uint32_t other = client_.CreateId(RDMA_PS_TCP);
  EXPECT_EQ(OfferedTo(client_client_), 1u) << "another id does not matter";
  const CmCall<rdma_ucm_resolve_route> call{client_.channel, 0, {id, 2000}};
  (void)client_client_.CallBytes(CmProgram::Op(RDMA_USER_CM_CMD_RESOLVE_ROUTE), &call, sizeof call);
  EXPECT_EQ(Destroy(other), 0u);
  EXPECT_EQ(Destroy(id), 1u);
  EXPECT_TRUE(TakeOffer(client_).empty());
}

TEST_F(EventOffersTest, ARuleWithdrawsOffersAndPreventsNewOnes) {
  WithRouteResolved();
  AddRule(client_client_,
          "name = \"any\", at = \"packet.rc_acknowledge\", nth = 1000, drop = true");
  EXPECT_TRUE(TakeOffer(client_).empty());
  EXPECT_EQ(client_.Next().event, static_cast<uint32_t>(cm::EventType::kRouteResolved));
  WithRouteResolved();
  EXPECT_TRUE(TakeOffer(client_).empty());
}

TEST_F(EventOffersTest, OtherChannelsAndOtherDevicesDoNotTakeTheOffer) {
  WithRouteResolved();
  EXPECT_TRUE(TakeFrom(client_client_, client_.channel + 1).empty());
  EXPECT_TRUE(TakeFrom(client_client_, client_.channel, kDevices + 1).empty());
  EXPECT_FALSE(TakeFrom(client_client_, client_.channel).empty());
  EXPECT_TRUE(TakeFrom(client_client_, client_.channel).empty()) << "taken already";
}

TEST_F(EventOffersTest, AReplyThatAThreadStillCopiesIsNotOverwritten) {
  const uint32_t id = WithRouteResolved();
  OfferedEvents& offers = OffersOf(client_client_);
  OfferedRange seen = offers.Range();
  const uint16_t place = seen.first % OfferedEvents::kSlots;
  ASSERT_TRUE(
      offers.Change(seen, {seen.generation, static_cast<uint16_t>(seen.first + 1), seen.end}));
  ASSERT_TRUE(world_.counters.Take(client_.counter));
  const auto reply = [&] {
    const std::byte* const bytes = offers.replies[place];
    return std::vector<std::byte>(bytes, bytes + offers.slots[place].bytes);
  };
  const std::vector<std::byte> before = reply();
  for (const uint32_t next : WithEvents(OfferedEvents::kSlots + 1)) {
    EXPECT_EQ(client_.Next().id, next);
    EXPECT_EQ(reply(), before);
  }
  EXPECT_EQ(Destroy(id), 2u);
  offers.Free(place);
  WithRouteResolved();
  EXPECT_FALSE(TakeOffer(client_).empty());
}

TEST_F(EventOffersTest, AnyRangeInThePageCostsAProgramAtMostItsOwnEvents) {
  for (const OfferedRange& range : std::vector<OfferedRange>{
           {}, {1, 0, 0}, {1, 1, 0}, {2, 0, 9}, {0, 0xffff, 0}, {~0u, 0xffff, 0xffff}}) {
    const uint32_t id = WithRouteResolved();
    OffersOf(client_client_).range = std::bit_cast<uint64_t>(range);
    EXPECT_EQ(Destroy(id), 2u) << range.first;  // the range says that the program has the event
    PageOf(client_client_).Init();
    while (world_.counters.Take(client_.counter)) {
    }
  }
}

TEST_F(EventOffersTest, AnEventOfAMigratedIdIsOfferedOnItsNewChannelAlone) {
  const uint32_t id = WithRouteResolved();
  CmProgram other(client_client_);
  client_.Do(RDMA_USER_CM_CMD_MIGRATE_ID, rdma_ucm_migrate_id{0, id, other.channel});
  EXPECT_TRUE(TakeOffer(client_).empty());
  EXPECT_EQ(world_.counters.value(client_.counter), 0u);
  EXPECT_TRUE(TakeOffer(other).empty()) << "no sequence has named this channel";
  EXPECT_EQ(other.Next().event, static_cast<uint32_t>(cm::EventType::kRouteResolved));
}

TEST_F(EventOffersTest, TheOfferFollowsTheChannelOfTheLastFetch) {
  CmProgram other(client_client_);
  const uint32_t id = WithRouteResolved();
  const auto sequence = EventFetch(other.channel, kDevices);
  (void)client_client_.CallBytes(static_cast<uint32_t>(CallOp::kSequence), sequence.data(),
                                 sequence.size());
  EXPECT_TRUE(TakeOffer(client_).empty());
  client_.Do(RDMA_USER_CM_CMD_MIGRATE_ID, rdma_ucm_migrate_id{0, id, other.channel});
  EXPECT_EQ(EventIn(TakeOffer(other)).id, id);
}

TEST_F(EventOffersTest, AClosedChannelsOfferIsWithdrawn) {
  CmProgram other(client_client_);
  const uint32_t id = WithRouteResolved();
  HandleIn in{};
  in.handle = client_.channel;
  EXPECT_EQ(
      client_client_.CallBytes(static_cast<uint32_t>(CallOp::kCmDestroyChannel), &in, sizeof in)
          .error,
      0);
  EXPECT_TRUE(TakeFrom(client_client_, client_.channel).empty());
  EXPECT_NE(id, 0u);
}

TEST_F(EventOffersTest, AChangeOfADeviceWithdrawsOffers) {
  WithRouteResolved();
  ChangeDeviceIn in{};
  (void)client_client_.CallBytes(static_cast<uint32_t>(CallOp::kChangeDevice), &in, sizeof in);
  EXPECT_TRUE(TakeOffer(client_).empty());
  EXPECT_EQ(client_.Next().event, static_cast<uint32_t>(cm::EventType::kRouteResolved));
}

TEST_F(EventOffersTest, ALimitedNumberOfProcessesHasOffers) {
  const uint32_t programs = HostEventOffers::kMaxProcesses + 1;
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<std::unique_ptr<CmProgram>> each;
  size_t offers = 0;
  for (uint32_t i = 0; i < programs; i++) {
    clients.push_back(std::make_unique<Client>(world_, client_host_, "many"));
    each.push_back(std::make_unique<CmProgram>(*clients.back()));
    WithRouteResolved(*each.back());
    offers += OfferedTo(*clients.back());
  }
  EXPECT_EQ(offers, HostEventOffers::kMaxProcesses);
  for (const auto& program : each) {
    EXPECT_EQ(program->Next().event, static_cast<uint32_t>(cm::EventType::kRouteResolved));
  }
}

TEST_F(EventOffersTest, ASequenceWithOtherCommandsIsNotRepeatedInAdvance) {
  const uint32_t id = client_.CreateId(RDMA_PS_TCP);
  client_.Do(RDMA_USER_CM_CMD_RESOLVE_IP,
             rdma_ucm_resolve_ip{{}, Ipv4Socket("127.0.0.1", kPort), id, 2000});
  SequenceBody sequence(2, kDevices);
  sequence.Add(client_.channel, RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{})
      .Add(client_.channel, RDMA_USER_CM_CMD_INIT_QP_ATTR, rdma_ucm_init_qp_attr{});
  Fetch(client_, sequence.bytes());
  client_.Do(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 2000});
  world_.Settle();
  EXPECT_TRUE(TakeOffer(client_).empty());
}

TEST_F(EventOffersTest, AnotherProgramThatNamesTheChannelGetsAndPreventsNoOffer) {
  Client other(world_, client_host_, "other");
  const auto sequence = EventFetch(client_.channel, kDevices);
  (void)other.CallBytes(static_cast<uint32_t>(CallOp::kSequence), sequence.data(), sequence.size());
  WithRouteResolved();
  EXPECT_TRUE(TakeFrom(other, client_.channel).empty());
  EXPECT_FALSE(TakeOffer(client_).empty());
}

TEST_F(EventOffersTest, AnEndedProgramsOfferIsForgotten) {
  WithRouteResolved();
  ASSERT_FALSE(TakeOffer(client_).empty());
  client_client_.Kill();
  world_.Settle();
  EXPECT_EQ(client_host_.processes(), 0u);
}

}  // namespace
}  // namespace rdmaemu::testing
