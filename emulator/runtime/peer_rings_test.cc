#include "emulator/runtime/peer_rings.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#include "emulator/runtime/epoll_tag.h"
#include "emulator/runtime/udp_network.h"
#include "emulator/wire/packet.h"

namespace rdmaemu::runtime {
namespace {

// Only this test uses these addresses.
const NetAddress kOneHost = NetAddress::Ipv4(0x7f4e0201), kOtherHost = NetAddress::Ipv4(0x7f4e0202),
                 kThirdHost = NetAddress::Ipv4(0x7f4e0203);
constexpr size_t kMany = 20000;  // datagrams: far more than a ring holds

class PeerRingsTest : public testing::TestWithParam<size_t> {
 protected:
  PeerRingsTest() { EXPECT_NE(mkdtemp(directory_), nullptr); }
  ~PeerRingsTest() override { std::filesystem::remove_all(directory_); }

  // A network with one port, which shares its queue, and its rings if `rings`.
  UdpNetwork Open(const NetAddress& address, bool rings = true) const {
    UdpNetwork network;
    Result<UdpPort> port = UdpPort::Open(address, 0);
    if (!port) {
      ADD_FAILURE() << "no port: " << port.error().code;
      return network;
    }
    network.Add(std::move(*port));
    network.ShareQueues(directory_);
    if (rings) network.ShareRings();
    return network;
  }

  // The datagram begins with its number.
  static bool Send(UdpNetwork& network, const NetAddress& from, const NetAddress& to, size_t number,
                   size_t bytes = 64) {
    const wire::UdpFlow flow{from, to, wire::kRoceUdpPort, wire::kRoceUdpPort};
    const std::span<std::byte> room = network.Allocate(flow, 0, bytes);
    if (room.empty()) return false;
    std::memcpy(room.data(), &number, sizeof number);
    network.Commit();
    return true;
  }

  struct Taken {
    size_t count = 0, out_of_order = 0;
    void Add(std::span<const std::byte> payload) {
      size_t number = 0;
      std::memcpy(&number, payload.data(), sizeof number);
      if (number != count) out_of_order++;
      count++;
    }
  };
  static UdpNetwork::Handler Into(Taken& taken) {
    return [&taken](const wire::UdpFlow&, WireForm,
                    std::span<const std::span<const std::byte>> payloads, const NetAddress&) {
      for (const std::span<const std::byte> payload : payloads) taken.Add(payload);
    };
  }
  static bool TakeByRing(UdpNetwork& network, Taken& taken) {
    return network.ReceiveShared(Into(taken));
  }
  static bool TakeBySocket(UdpNetwork& network, Taken& taken) {
    return network.ReceivePort(0, Into(taken));
  }
  const char* directory() const { return directory_; }

 private:
  char directory_[32] = "/tmp/rdmaemu-rings-XXXXXX";
};

TEST_F(PeerRingsTest, DatagramsBetweenSharingHostsUseNoSocket) {
  UdpNetwork first = Open(kOneHost), second = Open(kOtherHost);
  for (size_t i = 0; i < 10; i++) ASSERT_TRUE(Send(first, kOneHost, kOtherHost, i));
  first.Flush();
  Taken by_socket, by_ring;
  EXPECT_FALSE(TakeBySocket(second, by_socket));
  EXPECT_TRUE(TakeByRing(second, by_ring));
  EXPECT_EQ(by_ring.count, 10u);
  EXPECT_EQ(by_ring.out_of_order, 0u);
  EXPECT_FALSE(first.blocked());
}

TEST_F(PeerRingsTest, AnAwakeReaderSeesManyDatagramsBeforeTheFlush) {
  UdpNetwork first = Open(kOneHost), second = Open(kOtherHost);
  ASSERT_TRUE(Send(first, kOneHost, kOtherHost, 0));
  first.Flush();
  Taken taken;
  while (TakeByRing(second, taken)) {
  }
  ASSERT_EQ(taken.count, 1u);
  const size_t most = PeerRing::kPublishBytes / kRingAlignment + 1;
  for (size_t i = 1; i <= most; i++) ASSERT_TRUE(Send(first, kOneHost, kOtherHost, i));
  EXPECT_TRUE(TakeByRing(second, taken));
  EXPECT_GT(taken.count, 1u);
  first.Flush();
  while (TakeByRing(second, taken)) {
  }
  EXPECT_EQ(taken.count, most + 1);
  EXPECT_EQ(taken.out_of_order, 0u);
}

TEST_F(PeerRingsTest, IfOneHostSharesNoRingsTheSocketIsUsed) {
  for (const bool first_shares : {true, false}) {
    UdpNetwork first = Open(kOneHost, first_shares), second = Open(kOtherHost, !first_shares);
    ASSERT_TRUE(Send(first, kOneHost, kOtherHost, 0));
    first.Flush();
    Taken by_socket, by_ring;
    EXPECT_FALSE(TakeByRing(second, by_ring));
    EXPECT_TRUE(TakeBySocket(second, by_socket));
  }
}

TEST_F(PeerRingsTest, DatagramsBySocketPrecedeThoseInANewRing) {
  UdpNetwork first = Open(kOneHost, false), second = Open(kOtherHost);
  for (size_t i = 0; i < 20; i++) ASSERT_TRUE(Send(first, kOneHost, kOtherHost, i));
  first.ShareRings();
  for (size_t i = 20; i < 40; i++) ASSERT_TRUE(Send(first, kOneHost, kOtherHost, i));
  first.Flush();
  Taken taken;
  while (TakeByRing(second, taken)) {
  }
  EXPECT_EQ(taken.count, 40u);
  EXPECT_EQ(taken.out_of_order, 0u);
}

TEST_P(PeerRingsTest, ASenderWaitsForItsReader) {
  UdpNetwork first = Open(kOneHost), second = Open(kOtherHost);
  Taken taken;
  std::atomic<bool> all_sent = false;
  std::thread receiver([&] {
    bool is_last = false;
    while (taken.count < kMany) {
      if (TakeByRing(second, taken)) continue;
      if (is_last) break;
      is_last = all_sent;
      sched_yield();
    }
  });
  size_t sent = 0;
  // A send fails if the receiver gets no processor for PeerQueues::kDeafAfter.
  while (sent < kMany && Send(first, kOneHost, kOtherHost, sent, GetParam())) sent++;
  do {
    first.Flush();
  } while (first.blocked());
  all_sent = true;
  receiver.join();
  EXPECT_EQ(sent, kMany);
  EXPECT_EQ(taken.count, sent);
  EXPECT_EQ(taken.out_of_order, 0u);
}
// Both sides of OwnRings::kCopiedBytes, and a full packet.
INSTANTIATE_TEST_SUITE_P(Sizes, PeerRingsTest, testing::Values(8, 1023, 1024, 1025, 4170));

// Each host answers every datagram from its handler, in which it must not wait, and sends more of
// its own than fit the rings.
TEST_F(PeerRingsTest, TwoHostsThatAnswerEachOtherDoNotWaitForEver) {
  constexpr size_t kEach = 3000, kBytes = 2048;
  UdpNetwork networks[2] = {Open(kOneHost), Open(kOtherHost)};
  const NetAddress addresses[2] = {kOneHost, kOtherHost};
  constexpr uint64_t kAnswer = uint64_t{1} << 40;
  size_t asked[2] = {}, answered[2] = {};
  const auto run = [&](size_t i) {
    UdpNetwork& network = networks[i];
    const auto handler = [&](const wire::UdpFlow&, WireForm,
                             std::span<const std::span<const std::byte>> payloads,
                             const NetAddress&) {
      for (const std::span<const std::byte> payload : payloads) {
        uint64_t number = 0;
        std::memcpy(&number, payload.data(), sizeof number);
        if (number >= kAnswer) {
          answered[i]++;
        } else {
          asked[i]++;
          EXPECT_TRUE(Send(network, addresses[i], addresses[1 - i], kAnswer + number, kBytes));
        }
      }
    };
    for (size_t n = 0; n < kEach; n++) {
      EXPECT_TRUE(Send(network, addresses[i], addresses[1 - i], n, kBytes));
    }
    while (asked[i] < kEach || answered[i] < kEach || network.blocked()) {
      network.Flush();
      if (!network.ReceiveShared(handler)) sched_yield();
    }
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
  for (size_t i = 0; i < 2; i++) {
    EXPECT_EQ(asked[i], kEach);
    EXPECT_EQ(answered[i], kEach);
  }
}

TEST_F(PeerRingsTest, AReaderThatReadsNothingHoldsNobodyUpForEver) {
  UdpNetwork first = Open(kOneHost), second = Open(kOtherHost);
  size_t sent = 0;
  while (Send(first, kOneHost, kOtherHost, sent, 4096)) sent++;
  EXPECT_GT(sent, 100u);
  EXPECT_LT(sent, kMany);
  EXPECT_FALSE(first.blocked()) << "a stopped host wakes up nobody";
  Taken taken;
  while (TakeByRing(second, taken)) {
  }
  EXPECT_EQ(taken.count, sent);
  EXPECT_TRUE(Send(first, kOneHost, kOtherHost, 0)) << "the reader reads again";
}

TEST_F(PeerRingsTest, DatagramsForAKilledHostAreSentToItsAddress) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    UdpNetwork second = Open(kOtherHost);
    (void)!write(ready[1], "", 1);
    pause();
    _exit(0);
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  UdpNetwork first = Open(kOneHost);
  for (size_t i = 0; i < 3; i++) ASSERT_TRUE(Send(first, kOneHost, kOtherHost, i));
  first.Flush();
  EXPECT_TRUE(first.blocked());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  UdpNetwork second = Open(kOtherHost);
  while (first.blocked()) first.Flush();
  Taken taken;
  while (TakeBySocket(second, taken)) {
  }
  EXPECT_EQ(taken.count, 3u);
  EXPECT_EQ(taken.out_of_order, 0u);
  for (const int end : ready) close(end);
}

TEST_F(PeerRingsTest, AClosedPortHasNoRing) {
  UdpNetwork first = Open(kOneHost), second = Open(kOtherHost);
  ASSERT_TRUE(Send(first, kOneHost, kOtherHost, 0));
  second.Close(kOtherHost);
  first.Flush();
  EXPECT_FALSE(first.blocked());
  UdpNetwork third = Open(kOtherHost, false);
  ASSERT_TRUE(Send(first, kOneHost, kOtherHost, 0));
  first.Flush();
  Taken taken;
  EXPECT_TRUE(TakeBySocket(third, taken));
  EXPECT_EQ(taken.count, 1u);
}

TEST_F(PeerRingsTest, AHandlerMayCloseThePort) {
  UdpNetwork first = Open(kOneHost), second = Open(kOtherHost);
  for (size_t i = 0; i < 100; i++) ASSERT_TRUE(Send(first, kOneHost, kOtherHost, i));
  first.Flush();
  size_t calls = 0;
  const auto handler = [&](const auto&, auto, const auto&, const auto&) {
    calls++;
    second.Close(kOtherHost);
  };
  while (second.ReceiveShared(handler)) {
  }
  EXPECT_EQ(calls, 1u);
}

TEST_F(PeerRingsTest, ASleepingReaderIsWokenUp) {
  UdpNetwork first = Open(kOneHost), second = Open(kOtherHost);
  const UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  ASSERT_TRUE(second.Watch(epoll.get()));
  epoll_event event;
  ASSERT_TRUE(Send(first, kOneHost, kOtherHost, 0));
  first.Flush();
  EXPECT_EQ(epoll_wait(epoll.get(), &event, 1, 0), 0) << "the reader is awake";
  second.PrepareRingsForSleep(true);
  EXPECT_TRUE(second.HasUnreadInRings()) << "an offered ring";
  ASSERT_TRUE(Send(first, kOneHost, kOtherHost, 1));
  first.Flush();
  ASSERT_EQ(epoll_wait(epoll.get(), &event, 1, 1000), 1);
  EXPECT_EQ(KindOf(event), EventKind::kRings);
  second.TakeRingWake();
  EXPECT_EQ(epoll_wait(epoll.get(), &event, 1, 0), 0);
  second.PrepareRingsForSleep(false);
  Taken taken;
  while (TakeByRing(second, taken)) {
  }
  EXPECT_EQ(taken.count, 2u);
  EXPECT_FALSE(second.HasUnreadInRings());
}

// The rings of this process's hosts have one pid. So a host here counts as its own peer, too.
TEST_F(PeerRingsTest, AReaderThatHasSentMoreIsWokenUpLater) {
  UdpNetwork first = Open(kOneHost), second = Open(kOtherHost);
  const UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  ASSERT_TRUE(second.Watch(epoll.get()));
  epoll_event event;
  const auto is_woken = [&] { return epoll_wait(epoll.get(), &event, 1, 0) == 1; };
  const auto send_back = [&](size_t number) {
    ASSERT_TRUE(Send(second, kOtherHost, kOneHost, number));
    second.Flush();
  };
  Taken taken;
  for (size_t number = 0; number < 2; number++) {
    send_back(number);
    while (TakeByRing(first, taken)) {
    }
  }
  ASSERT_EQ(taken.count, 2u);

  for (const bool reads : {false, true}) {
    send_back(taken.count);
    ASSERT_TRUE(Send(first, kOneHost, kOtherHost, 0));
    second.PrepareRingsForSleep(true);
    first.Flush();
    EXPECT_FALSE(is_woken());
    if (reads) {
      ASSERT_TRUE(TakeByRing(first, taken));
    } else {
      for (int i = 1; i < PeerRing::kMaxLateWakes; i++) first.Flush();
      EXPECT_FALSE(is_woken());
    }
    first.Flush();
    EXPECT_TRUE(is_woken());
    second.TakeRingWake();
    second.PrepareRingsForSleep(false);
    while (TakeByRing(first, taken)) {
    }
  }
}

TEST_F(PeerRingsTest, AHostAtAnUnfilledFormSaysSo) {
  UdpNetwork first = Open(kOneHost), second = Open(kOtherHost);
  const wire::UdpFlow flow{kOneHost, kOtherHost, wire::kRoceUdpPort, wire::kRoceUdpPort};
  const auto room = first.AllocateForm(flow, 0, 5000, /*may_wait=*/true);
  ASSERT_TRUE(room);
  const std::unique_ptr<UnfilledForm> form = first.CommitUnfilled(4900);
  first.Flush();
  Taken taken;
  EXPECT_FALSE(TakeByRing(second, taken));
  EXPECT_TRUE(second.AwaitsPayload());
  form->Finish(true);
  EXPECT_FALSE(second.AwaitsPayload());
  EXPECT_TRUE(TakeByRing(second, taken));
}

TEST_F(PeerRingsTest, HostsShowEachOtherWhereTheirProgramsPoll) {
  UdpNetwork first = Open(kOneHost), second = Open(kOtherHost), third = Open(kThirdHost);
  Taken taken;
  EXPECT_EQ(third.PeersPoller(), 0u);
  for (const auto& [network, host] : {std::pair{&first, kOneHost}, {&second, kOtherHost}}) {
    ASSERT_TRUE(Send(*network, host, kThirdHost, 0));
    network->Flush();
    EXPECT_TRUE(TakeByRing(third, taken));
  }
  first.ShowPoller(2);
  EXPECT_EQ(third.PeersPoller(), 2u);
  second.ShowPoller(2);
  EXPECT_EQ(third.PeersPoller(), 2u);
  second.ShowPoller(1);
  EXPECT_EQ(third.PeersPoller(), 0u) << "on several processors";
  first.ShowPoller(0);
  EXPECT_EQ(third.PeersPoller(), 1u);
}

TEST_F(PeerRingsTest, AHostWithoutAFreeSlotUsesTheSocket) {
  UdpNetwork second = Open(kOtherHost);
  std::vector<UdpNetwork> others;
  Taken by_socket, by_ring;
  for (size_t i = 0; i <= kMaxRingsToPort; i++) {
    const NetAddress address = NetAddress::Ipv4(0x7f4e0300 + static_cast<uint32_t>(i));
    others.push_back(Open(address));
    ASSERT_TRUE(Send(others.back(), address, kOtherHost, 0));
    others.back().Flush();
  }
  EXPECT_TRUE(TakeBySocket(second, by_socket));
  EXPECT_EQ(by_socket.count, 1u);
  while (TakeByRing(second, by_ring)) {
  }
  EXPECT_EQ(by_ring.count, kMaxRingsToPort);
  // The slots of hosts that have ended are free again.
  others.clear();
  UdpNetwork first = Open(kOneHost);
  (void)TakeByRing(second, by_ring);
  ASSERT_TRUE(Send(first, kOneHost, kOtherHost, 0));
  first.Flush();
  by_ring = {};
  EXPECT_TRUE(TakeByRing(second, by_ring));
}

TEST_F(PeerRingsTest, AnOfferOfSomethingElseIsRefused) {
  const std::unique_ptr<OwnRings> rings = OwnRings::Create();
  ASSERT_NE(rings, nullptr);
  QueuePage page{};
  rings->Open(kOtherHost, page);
  const auto pid = static_cast<uint32_t>(getpid());
  const RingOffer offers[] = {{pid, 0}, {pid, UINT32_MAX}, {UINT32_MAX, 3}, {0, 1}};
  for (const RingOffer& offer : offers) {
    page.rings.slots[5] = offer.word();
    page.rings.offers++;
    EXPECT_TRUE(rings->HasOffers());
    rings->TakeOffers();
    EXPECT_FALSE(rings->HasOffers());
    EXPECT_EQ(page.rings.slots[5], 0u);
    EXPECT_FALSE(rings->HasUnread());
  }
}

}  // namespace
}  // namespace rdmaemu::runtime
