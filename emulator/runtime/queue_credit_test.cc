#include "emulator/runtime/queue_credit.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "emulator/runtime/socket_options.h"
#include "emulator/runtime/udp_network.h"
#include "emulator/wire/packet.h"

namespace rdmaemu::runtime {
namespace {

// Only this test uses these addresses.
const NetAddress kFirst = NetAddress::Ipv4(0x7f4e0101), kSecond = NetAddress::Ipv4(0x7f4e0102);
constexpr int kBufferBytes = 128 << 10;  // of each receive queue, as requested
constexpr size_t kDatagramBytes = 4096, kDatagrams = 20000;

class QueueCreditTest : public testing::Test {
 protected:
  QueueCreditTest() { EXPECT_NE(mkdtemp(directory_), nullptr); }
  ~QueueCreditTest() override { std::filesystem::remove_all(directory_); }

  // A network with one port, whose receive queue is small.
  static UdpNetwork Open(const NetAddress& address) {
    UdpNetwork network;
    Result<UdpPort> port = UdpPort::Open(address, 0);
    if (!port) {
      ADD_FAILURE() << "no port: " << port.error().code;
      return network;
    }
    EXPECT_TRUE(SetOption(port->fd(), SOL_SOCKET, SO_RCVBUF, kBufferBytes));
    network.Add(std::move(*port));
    return network;
  }

  // The datagram contains its number. Returns false if there was no room.
  static bool Send(UdpNetwork& network, const NetAddress& from, const NetAddress& to,
                   size_t number) {
    const wire::UdpFlow flow{from, to, wire::kRoceUdpPort, wire::kRoceUdpPort};
    const std::span<std::byte> room = network.Allocate(flow, 0, kDatagramBytes);
    if (room.empty()) return false;
    std::memcpy(room.data(), &number, sizeof number);
    network.Commit();
    return true;
  }

  static bool Take(UdpNetwork& network, size_t& taken, size_t& out_of_order) {
    return network.ReceivePort(
        0, [&](const wire::UdpFlow&, WireForm, std::span<const std::span<const std::byte>> payloads,
               const NetAddress&) {
          for (const std::span<const std::byte> payload : payloads) {
            size_t number = 0;
            std::memcpy(&number, payload.data(), sizeof number);
            if (number != taken) out_of_order++;
            taken++;
          }
        });
  }

  const char* directory() const { return directory_; }

 private:
  char directory_[32] = "/tmp/rdmaemu-credit-XXXXXX";
};

TEST_F(QueueCreditTest, WithoutItTheKernelDropsAndTheDropsAreCounted) {
  UdpNetwork first = Open(kFirst), second = Open(kSecond);
  for (size_t i = 0; i < kDatagrams; i++) ASSERT_TRUE(Send(first, kFirst, kSecond, i));
  first.Flush();
  size_t taken = 0, out_of_order = 0;
  while (Take(second, taken, out_of_order)) {
  }
  EXPECT_LT(taken, kDatagrams);
  EXPECT_GT(taken, 0u);
  // A burst that is dropped counts as one.
  EXPECT_GT(second.queue_drops(), 0u);
  EXPECT_EQ(first.queue_drops(), 0u);
}

TEST_F(QueueCreditTest, ASenderWaitsForItsReceiver) {
  UdpNetwork first = Open(kFirst), second = Open(kSecond);
  first.ShareQueues(directory());
  second.ShareQueues(directory());
  size_t taken = 0, out_of_order = 0;
  std::thread receiver([&] {
    while (taken < kDatagrams) {
      if (!Take(second, taken, out_of_order)) sched_yield();
    }
  });
  for (size_t i = 0; i < kDatagrams; i++) EXPECT_TRUE(Send(first, kFirst, kSecond, i));
  do {
    first.Flush();
  } while (first.blocked());
  receiver.join();
  EXPECT_EQ(out_of_order, 0u);
  EXPECT_EQ(second.queue_drops(), 0u);
}

TEST_F(QueueCreditTest, TwoThatSendToEachOtherBothArrive) {
  // Far more than the queues hold, and less than a waiting sender stages
  // (UdpNetwork::kMaxStagedBytes).
  constexpr size_t kEach = 1000;
  UdpNetwork networks[2] = {Open(kFirst), Open(kSecond)};
  const NetAddress addresses[2] = {kFirst, kSecond};
  for (UdpNetwork& network : networks) network.ShareQueues(directory());
  size_t taken[2] = {}, out_of_order[2] = {};
  const auto run = [&](size_t i) {
    UdpNetwork& network = networks[i];
    // Both send everything first, so only a waiting send receives the datagrams of the other.
    for (size_t n = 0; n < kEach; n++) {
      EXPECT_TRUE(Send(network, addresses[i], addresses[1 - i], n));
    }
    while (taken[i] < kEach || network.blocked()) {
      network.Flush();
      if (!Take(network, taken[i], out_of_order[i])) sched_yield();
    }
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
  for (size_t i = 0; i < 2; i++) {
    EXPECT_EQ(out_of_order[i], 0u);
    EXPECT_EQ(networks[i].queue_drops(), 0u);
  }
}

TEST_F(QueueCreditTest, AReceiverThatTakesNothingHoldsNobodyUpForEver) {
  UdpNetwork first = Open(kFirst), second = Open(kSecond);
  first.ShareQueues(directory());
  second.ShareQueues(directory());
  for (size_t i = 0; i < kDatagrams; i++) ASSERT_TRUE(Send(first, kFirst, kSecond, i));
  first.Flush();
  EXPECT_GT(second.queue_drops(), 0u);
}

// ---- the counters alone

struct Pair {
  explicit Pair(const std::string& directory) : port(UdpPort::Open(kSecond, 0)), peers(directory) {
    SetOption(port->fd(), SOL_SOCKET, SO_RCVBUF, kBufferBytes);
    own = OwnQueue::Publish(directory, kSecond, port->fd());
  }
  Result<UdpPort> port;
  std::unique_ptr<OwnQueue> own;
  PeerQueues peers;
};
// The kernel doubles the requested size, and frees a quarter of it late.
constexpr uint64_t kCapacity = uint64_t{kBufferBytes} * 2 * 3 / 4;

TEST_F(QueueCreditTest, AQueueFitsItsCapacityAndNoByteMore) {
  Pair pair(directory());
  ASSERT_NE(pair.own, nullptr);
  EXPECT_TRUE(pair.peers.Fits(kSecond, 1, kCapacity - 1));
  EXPECT_FALSE(pair.peers.Fits(kSecond, 1, kCapacity));
  EXPECT_TRUE(pair.peers.Fits(kSecond, 0, kCapacity + 1)) << "one burst fits an empty queue";
  pair.peers.Sent(kSecond, kCapacity - 10);
  EXPECT_TRUE(pair.peers.Fits(kSecond, 0, 10));
  EXPECT_FALSE(pair.peers.Fits(kSecond, 0, 11));
  EXPECT_FALSE(pair.peers.Fits(kSecond, 1, 10));
  pair.own->Took(1);
  EXPECT_TRUE(pair.peers.Fits(kSecond, 0, 11));
}

TEST_F(QueueCreditTest, WhatTheKernelDroppedIsGivenBackWhenTheQueueIsEmpty) {
  Pair pair(directory());
  ASSERT_NE(pair.own, nullptr);
  const uint64_t before = pair.own->sent();
  pair.peers.Sent(kSecond, kCapacity);
  pair.own->Emptied(before);
  EXPECT_FALSE(pair.peers.Fits(kSecond, 0, 1)) << "it was sent after the look";
  pair.own->Emptied(pair.own->sent());
  EXPECT_TRUE(pair.peers.Fits(kSecond, 1, kCapacity - 1));
}

TEST_F(QueueCreditTest, APortThatIsClosedOrNotPublishedHoldsNobodyUp) {
  Pair pair(directory());
  ASSERT_NE(pair.own, nullptr);
  EXPECT_TRUE(pair.peers.Fits(kFirst, 1, kCapacity));
  pair.peers.Sent(kSecond, kCapacity);
  EXPECT_FALSE(pair.peers.Fits(kSecond, 0, 1));
  pair.own.reset();
  EXPECT_TRUE(pair.peers.Fits(kSecond, 0, 1));
  EXPECT_TRUE(std::filesystem::is_empty(directory()));
}

TEST_F(QueueCreditTest, AFileThatNamesSomethingElseIsNobodysQueue) {
  Pair pair(directory());
  ASSERT_NE(pair.own, nullptr);
  for (const auto& entry : std::filesystem::directory_iterator(directory())) {
    for (const char* where : {"", "/etc/passwd\n", "/proc/self/fd/0\n", "/proc/self/exe\n", "x"}) {
      FILE* const file = fopen(entry.path().c_str(), "w");
      ASSERT_NE(file, nullptr);
      fputs(where, file);
      fclose(file);
      PeerQueues others(directory());
      EXPECT_TRUE(others.Fits(kSecond, 1, kCapacity)) << where;
    }
  }
}

}  // namespace
}  // namespace rdmaemu::runtime
