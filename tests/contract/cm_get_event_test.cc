// rdma_get_cm_event(3) and rdma_ack_cm_event(3): waiting, descriptors, signals, threads, the memory
// of an event, and the events of a destroyed id.
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <thread>

#include "tests/contract/support/direct.h"
#include "tests/contract/support/transport.h"

namespace rdma_contract {
namespace {

class GetEvent : public ConnectedTest {
 protected:
  static int GetFrom(rdma_event_channel* from, CmEvent* event) {
    rdma_cm_event* got = nullptr;
    const int error = ErrnoOf(rdma_get_cm_event(from, &got));
    if (error == 0) event->reset(got);
    return error;
  }
  void SetNonblocking(bool on) {
    const int flags = fcntl(channel->fd, F_GETFL);
    ASSERT_EQ(fcntl(channel->fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK), 0);
  }
};

// ---- waiting

TEST_F(GetEvent, BlocksUntilAnEventComes) {
  const CmId id = NewId(channel.get());
  CmEvent event;
  std::future<int> got = std::async(std::launch::async, GetFrom, channel.get(), &event);
  EXPECT_TRUE(StillWaits(got));
  ASSERT_EQ(ResolveTo(id.get(), here, 1), 0);
  EXPECT_EQ(got.get(), 0);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->id, id.get());
  EXPECT_EQ(event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
}

TEST_F(GetEvent, OnANonblockingDescriptorSaysEagain) {
  ASSERT_NO_FATAL_FAILURE(SetNonblocking(true));
  const CmId id = NewId(channel.get());
  CmEvent event;
  EXPECT_EQ(GetFrom(channel.get(), &event), EAGAIN);
  ASSERT_EQ(ResolveTo(id.get(), here, 1), 0);
  ASSERT_TRUE(IsReadable(channel.get(), kPatience_ms));
  EXPECT_EQ(GetFrom(channel.get(), &event), 0);
  CmEvent none;
  EXPECT_EQ(GetFrom(channel.get(), &none), EAGAIN);
}

TEST_F(GetEvent, BlocksAgainWhenTheDescriptorIsMadeBlockingAgain) {
  ASSERT_NO_FATAL_FAILURE(SetNonblocking(true));
  ASSERT_NO_FATAL_FAILURE(SetNonblocking(false));
  CmEvent event;
  std::future<int> got = std::async(std::launch::async, GetFrom, channel.get(), &event);
  EXPECT_TRUE(StillWaits(got));
  const CmId id = NewId(channel.get());
  ASSERT_EQ(ResolveTo(id.get(), here, 1), 0);
  EXPECT_EQ(got.get(), 0);
  event.reset();
}

TEST_F(GetEvent, WithNowhereToPutTheEventIsInvalid) {
  EXPECT_EQ(ErrnoOf(rdma_get_cm_event(channel.get(), nullptr)), EINVAL);
}

// ---- descriptors

TEST_F(GetEvent, PollSaysReadableExactlyWhileEventsWait) {
  EXPECT_FALSE(IsReadable(channel.get()));
  const CmId a = NewId(channel.get()), b = NewId(channel.get());
  ASSERT_EQ(ResolveTo(a.get(), here, 1), 0);
  ASSERT_EQ(ResolveTo(b.get(), here, 1), 0);
  ASSERT_TRUE(IsReadable(channel.get(), kPatience_ms));
  Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_TRUE(IsReadable(channel.get(), kPatience_ms));
  Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_FALSE(IsReadable(channel.get()));
}

TEST_F(GetEvent, SelectSaysReadableWhileAnEventWaits) {
  const auto readable = [&](int limit_s) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(channel->fd, &set);
    timeval limit{limit_s, 0};
    return select(channel->fd + 1, &set, nullptr, nullptr, &limit) == 1 &&
           FD_ISSET(channel->fd, &set);
  };
  EXPECT_FALSE(readable(0));
  const CmId id = NewId(channel.get());
  ASSERT_EQ(ResolveTo(id.get(), here, 1), 0);
  EXPECT_TRUE(readable(kPatience_ms / 1000));
  Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_FALSE(readable(0));
}

class Epoll : public GetEvent {
 protected:
  void Watch(uint32_t events) {
    epoll_event wanted{};
    wanted.events = events;
    wanted.data.ptr = channel.get();
    ASSERT_EQ(epoll_ctl(set, EPOLL_CTL_ADD, channel->fd, &wanted), 0);
  }
  int Wait(int limit_ms) {
    epoll_event got{};
    return epoll_wait(set, &got, 1, limit_ms);
  }
  void TearDown() override { close(set); }
  int set = epoll_create1(EPOLL_CLOEXEC);
};

TEST_F(Epoll, ReportsLevels) {
  ASSERT_NO_FATAL_FAILURE(Watch(EPOLLIN));
  EXPECT_EQ(Wait(0), 0);
  const CmId id = NewId(channel.get());
  ASSERT_EQ(ResolveTo(id.get(), here, 1), 0);
  EXPECT_EQ(Wait(kPatience_ms), 1);
  EXPECT_EQ(Wait(0), 1);
  Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(Wait(0), 0);
}

TEST_F(Epoll, ReportsEdges) {
  ASSERT_NO_FATAL_FAILURE(Watch(EPOLLIN | EPOLLET));
  const CmId a = NewId(channel.get()), b = NewId(channel.get());
  ASSERT_EQ(ResolveTo(a.get(), here, 1), 0);
  EXPECT_EQ(Wait(kPatience_ms), 1);
  EXPECT_EQ(Wait(0), 0);  // reported once
  ASSERT_EQ(ResolveTo(b.get(), here, 1), 0);
  EXPECT_EQ(Wait(kPatience_ms), 1);  // a new event is a new edge, though the first is still queued
  Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
  Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
}

// ---- signals

std::atomic<int> g_signals{0};
void CountSignal(int) { ++g_signals; }

class Signals : public GetEvent {
 protected:
  // Sends SIGUSR1 to a thread that waits for an event until the signal handler has run.
  void Interrupt(std::thread& waiting) {
    const int before = g_signals;
    while (g_signals == before) {
      pthread_kill(waiting.native_handle(), SIGUSR1);
      poll(nullptr, 0, 20);
    }
  }
  void Handle(int flags) {
    struct sigaction action {};
    action.sa_handler = CountSignal;
    action.sa_flags = flags;
    ASSERT_EQ(sigaction(SIGUSR1, &action, nullptr), 0);
  }
  void TearDown() override { signal(SIGUSR1, SIG_DFL); }
};

TEST_F(Signals, AHandlerInterruptsTheWaitWithEintr) {
  ASSERT_NO_FATAL_FAILURE(Handle(0));
  CmEvent event;
  std::atomic<int> result{-1};
  std::atomic<bool> started{false};
  std::thread waiting([&] {
    started = true;
    result = GetFrom(channel.get(), &event);
  });
  while (!started) poll(nullptr, 0, 1);
  // A signal before the call does not interrupt the call, so the test sends several signals.
  while (result == -1) {
    pthread_kill(waiting.native_handle(), SIGUSR1);
    poll(nullptr, 0, 20);
  }
  waiting.join();
  EXPECT_EQ(result, EINTR);
  EXPECT_FALSE(event);
}

TEST_F(Signals, AHandlerThatRestartsCallsLetsItWaitOn) {
  ASSERT_NO_FATAL_FAILURE(Handle(SA_RESTART));
  CmEvent event;
  std::atomic<int> result{-1};
  std::thread waiting([&] { result = GetFrom(channel.get(), &event); });
  poll(nullptr, 0, kQuiet_ms);
  for (int i = 0; i < 3; ++i) Interrupt(waiting);
  EXPECT_EQ(result, -1);
  const CmId id = NewId(channel.get());
  ASSERT_EQ(ResolveTo(id.get(), here, 1), 0);
  waiting.join();
  EXPECT_EQ(result, 0);
  event.reset();
}

// ---- threads

TEST_F(GetEvent, ThreadsOnOneChannelGetEachEventOnce) {
  constexpr int kThreads = 4, kEach = 8;
  std::vector<CmId> ids;
  for (int i = 0; i < kThreads * kEach; ++i) ids.push_back(NewId(channel.get()));
  std::vector<std::future<std::vector<rdma_cm_id*>>> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.push_back(std::async(std::launch::async, [&] {
      std::vector<rdma_cm_id*> got;
      for (int n = 0; n < kEach; ++n) {
        CmEvent event;
        if (GetFrom(channel.get(), &event) == 0) got.push_back(event->id);
      }
      return got;
    }));
  }
  for (const CmId& id : ids) ASSERT_EQ(ResolveTo(id.get(), here, 1), 0);
  std::map<rdma_cm_id*, int> seen;
  for (auto& thread : threads) {
    for (rdma_cm_id* id : thread.get()) ++seen[id];
  }
  EXPECT_EQ(seen.size(), ids.size());
  for (const CmId& id : ids) EXPECT_EQ(seen[id.get()], 1);
  EXPECT_FALSE(IsReadable(channel.get()));
}

TEST_F(GetEvent, AThreadMayAcknowledgeWhatAnotherFetched) {
  CmId id = NewId(channel.get());
  ASSERT_EQ(ResolveTo(id.get(), here, 1), 0);
  CmEvent event = Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
  std::thread([&] { event.reset(); }).join();
  EXPECT_EQ(ErrnoOf(rdma_destroy_id(id.release())), 0);
}

// ---- the content of an event

TEST_F(GetEvent, ARequestNamesItsListenerAndANewIdThatTakesAfterIt) {
  int context = 0;
  listener = NewId(passive_channel.get(), RDMA_PS_TCP, &context);
  ASSERT_EQ(BindTo(listener.get(), here), 0);
  ASSERT_EQ(rdma_listen(listener.get(), 1), 0);
  active = Requesting(listener.get());
  CmEvent event = Expect(passive_channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_TRUE(event);
  passive.reset(event->id);
  EXPECT_EQ(event->listen_id, listener.get());
  EXPECT_NE(event->id, listener.get());
  EXPECT_EQ(event->id->context, &context);
  EXPECT_EQ(event->id->channel, passive_channel.get());
  EXPECT_EQ(event->id->ps, RDMA_PS_TCP);
  EXPECT_EQ(event->id->qp_type, IBV_QPT_RC);
  EXPECT_EQ(event->id->qp, nullptr);
  EXPECT_EQ(event->id->verbs, active->verbs);
  EXPECT_EQ(event->id->pd, active->pd);
}

TEST_F(GetEvent, OtherEventsNameNoListener) {
  const CmId id = NewId(channel.get());
  ASSERT_EQ(ResolveTo(id.get(), here, 1), 0);
  EXPECT_EQ(Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED)->listen_id, nullptr);
}

TEST_F(GetEvent, ComeInTheOrderInWhichTheyHappened) {
  const CmId a = NewId(channel.get()), b = NewId(channel.get()), c = NewId(channel.get());
  for (const CmId* id : {&b, &a, &c}) {
    ASSERT_EQ(ResolveTo(id->get(), here, 1), 0);
    poll(nullptr, 0, 20);  // each resolution is a separate work item in the kernel
  }
  for (const CmId* id : {&b, &a, &c}) {
    EXPECT_EQ(Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED)->id, id->get());
  }
}

TEST_F(GetEvent, AnEventsMemoryIsItsOwnUntilItIsAcknowledged) {
  listener = Listener(passive_channel.get());
  const CmId one = Requesting(listener.get(), "first"), two = Requesting(listener.get(), "second");
  CmEvent first = Expect(passive_channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_TRUE(first);
  const CmId first_id(first->id);
  CmEvent second = Expect(passive_channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_TRUE(second);
  const CmId second_id(second->id);
  EXPECT_NE(first->param.conn.private_data, second->param.conn.private_data);
  second.reset();
  EXPECT_STREQ(static_cast<const char*>(first->param.conn.private_data), "first");
  first.reset();
}

TEST_F(GetEvent, AcknowledgingNothingIsInvalid) {
  EXPECT_EQ(ErrnoOf(rdma_ack_cm_event(nullptr)), EINVAL);
}

// ---- destroying

TEST_F(GetEvent, DestroyingWaitsUntilTheEventIsAcknowledged) {
  CmId id = NewId(channel.get());
  ASSERT_EQ(ResolveTo(id.get(), here, 1), 0);
  CmEvent event = Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
  std::future<int> destroyed =
      std::async(std::launch::async, [&] { return ErrnoOf(rdma_destroy_id(id.release())); });
  EXPECT_TRUE(StillWaits(destroyed));
  event.reset();
  EXPECT_EQ(destroyed.get(), 0);
}

TEST_F(GetEvent, DestroyingWaitsForEveryOneOfThem) {
  CmId id = NewId(channel.get());
  ASSERT_EQ(ResolveTo(id.get(), here, 1), 0);
  CmEvent first = Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(rdma_resolve_route(id.get(), 2000), 0);
  CmEvent second = Expect(channel.get(), RDMA_CM_EVENT_ROUTE_RESOLVED);
  std::future<int> destroyed =
      std::async(std::launch::async, [&] { return ErrnoOf(rdma_destroy_id(id.release())); });
  second.reset();  // the order of the acknowledgements does not matter
  EXPECT_TRUE(StillWaits(destroyed));
  first.reset();
  EXPECT_EQ(destroyed.get(), 0);
}

TEST_F(GetEvent, DestroyingDropsWhatWasNotFetchedAndKeepsWhatIsOthers) {
  const CmId stays = NewId(channel.get());
  CmId goes = NewId(channel.get());
  ASSERT_EQ(ResolveTo(goes.get(), here, 1), 0);
  ASSERT_TRUE(IsReadable(channel.get(), kPatience_ms));
  EXPECT_EQ(rdma_destroy_id(goes.release()), 0);
  EXPECT_FALSE(IsReadable(channel.get()));
  ASSERT_EQ(ResolveTo(stays.get(), here, 1), 0);
  EXPECT_EQ(Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED)->id, stays.get());
  EXPECT_FALSE(IsReadable(channel.get()));
}

TEST_F(GetEvent, AnUnacknowledgedRequestHoldsTheListenerAndNotItsId) {
  if (IsIwarp()) GTEST_SKIP() << kResets;
  listener = Listener(passive_channel.get());
  active = Requesting(listener.get());
  CmEvent event = Expect(passive_channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_TRUE(event);
  EXPECT_EQ(ErrnoOf(rdma_destroy_id(event->id)), 0);
  std::future<int> destroyed =
      std::async(std::launch::async, [&] { return ErrnoOf(rdma_destroy_id(listener.release())); });
  EXPECT_TRUE(StillWaits(destroyed));
  event.reset();
  EXPECT_EQ(destroyed.get(), 0);
  Expect(channel.get(), RDMA_CM_EVENT_REJECTED, 28);
}

TEST_F(GetEvent, DestroyingAListenerDropsItsRequestsAndRejectsThem) {
  if (IsIwarp()) GTEST_SKIP() << kResets;
  listener = Listener(passive_channel.get());
  active = Requesting(listener.get());
  ASSERT_TRUE(IsReadable(passive_channel.get(), kPatience_ms));
  EXPECT_EQ(rdma_destroy_id(listener.release()), 0);
  EXPECT_FALSE(IsReadable(passive_channel.get()));
  Expect(channel.get(), RDMA_CM_EVENT_REJECTED, 28);
}

TEST_F(GetEvent, AThreadThatWaitsIsNotWokenByADestroyedIdsEvents) {
  CmId id = NewId(channel.get());
  ASSERT_EQ(ResolveTo(id.get(), here, 1), 0);
  ASSERT_TRUE(IsReadable(channel.get(), kPatience_ms));
  ASSERT_EQ(rdma_destroy_id(id.release()), 0);
  CmEvent event;
  std::future<int> got = std::async(std::launch::async, GetFrom, channel.get(), &event);
  EXPECT_TRUE(StillWaits(got));
  const CmId other = NewId(channel.get());
  ASSERT_EQ(ResolveTo(other.get(), here, 1), 0);
  EXPECT_EQ(got.get(), 0);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->id, other.get());
  event.reset();
}

TEST_F(GetEvent, ReadingTheEstablishedEventIsWhatEstablishes) {
  if (IsIwarp()) GTEST_SKIP() << kNoRtu;
  listener = Listener(passive_channel.get());
  active = Requesting(listener.get());
  passive = NextRequest(passive_channel.get());
  ASSERT_TRUE(passive);
  ASSERT_EQ(MakeQueues(passive.get()), 0);
  ASSERT_EQ(rdma_accept(passive.get(), nullptr), 0);
  ASSERT_TRUE(IsReadable(channel.get(), kPatience_ms));
  // The reply has arrived, but no call has fetched its event. The QP and the passive side therefore
  // wait.
  EXPECT_EQ(StateOf(active->qp), IBV_QPS_INIT);
  EXPECT_FALSE(IsReadable(passive_channel.get(), kQuiet_ms));
  Expect(channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(StateOf(active->qp), IBV_QPS_RTS);
  Expect(passive_channel.get(), RDMA_CM_EVENT_ESTABLISHED);
}

}  // namespace
}  // namespace rdma_contract
