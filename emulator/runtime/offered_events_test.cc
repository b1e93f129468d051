// The offers in a process's page (abi/process_page.h), while threads of the program take events and
// the host adds and withdraws some.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "emulator/abi/process_page.h"

namespace rdmaemu::runtime {
namespace {

constexpr uint32_t kChannel = 7, kDevices = 3, kTakers = 4, kEvents = 20'000;

// The host's side, as HostEventOffers.
class Host {
 public:
  explicit Host(OfferedEvents& offers) : offers_(offers) { offers_.Begin(1, kChannel, kDevices); }

  // Offers the next event. Returns false if there is no room now.
  bool Offer() {
    Settle();
    if (range_.size() == OfferedEvents::kSlots || !offers_.HasRoomFor(range_.end)) return false;
    std::array<std::byte, 256> reply;
    const uint32_t event = reported_ + range_.size();
    for (size_t at = 0; at < reply.size(); at += sizeof event) {
      std::memcpy(reply.data() + at, &event, sizeof event);
    }
    offers_.Write(range_.end, reply);
    OfferedRange seen = offers_.Range(), more;
    do {
      more = seen;
      more.end++;
    } while (!offers_.Change(seen, more));
    range_.end++;
    return true;
  }
  // Withdraws all events that no thread has taken.
  void Withdraw() {
    OfferedRange seen = offers_.Range();
    while (!offers_.Change(seen, {seen.generation + 1, seen.first, seen.first})) {
    }
    reported_ += static_cast<uint16_t>(seen.first - range_.first);
    for (uint16_t number = seen.first; number != range_.end; number++) offers_.Free(number);
    range_ = {seen.generation + 1, seen.first, seen.first};
  }
  // Returns how many events were taken.
  uint32_t Settle() {
    const uint16_t first = offers_.Range().first;
    reported_ += static_cast<uint16_t>(first - range_.first);
    range_.first = first;
    return reported_;
  }

 private:
  OfferedEvents& offers_;
  OfferedRange range_{1, 0, 0};
  uint32_t reported_ = 0;
};

// Takes events until the last one was taken. Returns their numbers.
std::vector<uint32_t> TakeAll(OfferedEvents& offers, std::atomic<bool>& is_over) {
  std::vector<uint32_t> taken;
  std::array<uint32_t, 64> reply;
  while (!is_over) {
    const uint32_t bytes = offers.Take(kChannel, kDevices, reply.data(), sizeof reply);
    if (bytes == 0) {
      std::this_thread::yield();
      continue;
    }
    EXPECT_EQ(bytes, sizeof reply);
    for (const uint32_t word : reply) EXPECT_EQ(word, reply[0]) << "of two events";
    taken.push_back(reply[0]);
  }
  return taken;
}

TEST(OfferedEvents, EachEventIsTakenOnceAndInOrder) {
  const auto page = std::make_unique<ProcessPage>();
  page->Init();
  Host host(page->offers);
  std::atomic<bool> is_over = false;
  std::vector<std::vector<uint32_t>> taken(kTakers);
  std::vector<std::thread> takers;
  for (std::vector<uint32_t>& each : taken) {
    takers.emplace_back([&] { each = TakeAll(page->offers, is_over); });
  }
  for (uint32_t i = 0; host.Settle() < kEvents; i++) {
    if (!host.Offer()) std::this_thread::yield();
    if (i % 7 == 0) host.Withdraw();
  }
  host.Withdraw();
  is_over = true;
  for (std::thread& taker : takers) taker.join();
  std::vector<bool> seen(host.Settle());
  size_t count = 0;
  for (const std::vector<uint32_t>& each : taken) {
    EXPECT_TRUE(std::is_sorted(each.begin(), each.end()));
    for (const uint32_t event : each) {
      ASSERT_LT(event, seen.size());
      EXPECT_FALSE(seen[event]) << event << " was taken twice";
      seen[event] = true;
    }
    count += each.size();
  }
  EXPECT_EQ(count, seen.size()) << "events were lost";
}

TEST(OfferedEvents, AreForOneChannelAndSetOfDevices) {
  const auto page = std::make_unique<ProcessPage>();
  page->Init();
  std::array<uint32_t, 64> reply;
  EXPECT_EQ(page->offers.Take(0, 0, reply.data(), sizeof reply), 0u) << "an empty page";
  Host host(page->offers);
  ASSERT_TRUE(host.Offer());
  EXPECT_EQ(page->offers.Take(kChannel + 1, kDevices, reply.data(), sizeof reply), 0u);
  EXPECT_EQ(page->offers.Take(kChannel, kDevices + 1, reply.data(), sizeof reply), 0u);
  EXPECT_EQ(page->offers.Take(kChannel, kDevices, reply.data(), 8), 8u) << "a small buffer";
}

}  // namespace
}  // namespace rdmaemu::runtime
