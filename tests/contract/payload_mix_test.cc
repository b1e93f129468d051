// Many requests of different kinds and sizes are outstanding on one queue pair. Their effects are
// those of their order of posting (IBTA 9.5, 10.8.3.3): receives are used in order, completions
// are in order, and of two WRITEs to the same bytes the last one stays.
#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "tests/contract/support/payload.h"

namespace rdma_contract {
namespace {

constexpr uint32_t kRequests = 24;
constexpr uint32_t kSizes[] = {1, 255, 256, 257, 4095, 4096, 4097, 12288, 65536, 262144, 266241};
constexpr uint32_t kSlot = 320 * 1024;  // the bytes of one request at each side
constexpr uint32_t kSeeds = 6;
constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
                                      IBV_WR_RDMA_READ};

using PayloadMix = PayloadTest;

struct Request {
  ibv_wr_opcode opcode;
  uint32_t size;
  size_t here, there;  // offsets
  bool takes_receive() const {
    return opcode == IBV_WR_SEND || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  }
};

// Half of the WRITEs go to one slot. No READ is from there.
std::vector<Request> Draw(uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](size_t limit) { return random() % limit; };
  // Even seeds: mostly large messages of one kind, which a device may batch.
  const ibv_wr_opcode usual = kOpcodes[below(std::size(kOpcodes))];
  std::vector<Request> drawn;
  for (uint32_t i = 0; i < kRequests; i++) {
    const bool is_usual = seed % 2 == 0 && below(4) != 0;
    Request one{};
    one.opcode = is_usual ? usual : kOpcodes[below(std::size(kOpcodes))];
    one.size = kSizes[is_usual ? 5 + below(std::size(kSizes) - 5) : below(std::size(kSizes))];
    one.here = one.there = size_t{i + 1} * kSlot;
    const bool is_write =
        one.opcode == IBV_WR_RDMA_WRITE || one.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    if (is_write && below(2) == 0) one.there = 0;
    drawn.push_back(one);
  }
  return drawn;
}

// Splits the bytes of a receive into at most three pieces.
WorkRequest ReceiveFor(const PayloadPair& p, uint64_t wr_id, const Request& request) {
  WorkRequest receive{.wr_id = wr_id};
  if (request.opcode != IBV_WR_SEND) return receive;
  const auto pieces = static_cast<uint32_t>(1 + wr_id % 3);
  const uint32_t most = request.size / pieces + 1;
  for (uint32_t at = 0; at < request.size; at += most) {
    receive.Add(p.there.address() + request.there + at, std::min(most, request.size - at),
                p.to.lkey);
  }
  return receive;
}

void PostAll(PayloadPair& p, const std::vector<Request>& requests) {
  for (uint32_t i = 0; i < requests.size(); i++) {
    if (!requests[i].takes_receive()) continue;
    ASSERT_EQ(p.remote.PostReceive(p.pair.remote, ReceiveFor(p, i, requests[i])), 0);
  }
  for (uint32_t i = 0; i < requests.size(); i++) {
    WorkRequest send{.wr_id = i, .opcode = requests[i].opcode};
    send.remote_address = p.there.address() + requests[i].there;
    send.rkey = p.to.rkey;
    send.Add(p.here.address() + requests[i].here, requests[i].size, p.from.lkey);
    ASSERT_EQ(p.local.PostSend(p.pair.local, send), 0);
  }
}

void ExpectEffectsInOrder(Sides sides, const QpSpec& spec) {
  for (uint32_t seed = 0; seed < kSeeds; seed++) {
    SCOPED_TRACE(seed);
    PayloadPair p(sides, (kRequests + 1) * kSlot, spec);
    const std::vector<Request> requests = Draw(seed);
    std::vector<uint8_t> here(p.here.bytes().begin(), p.here.bytes().end());
    std::vector<uint8_t> there(p.there.bytes().begin(), p.there.bytes().end());
    for (const Request& one : requests) {
      if (one.opcode == IBV_WR_RDMA_READ) {
        std::copy_n(there.data() + one.there, one.size, here.data() + one.here);
      } else {
        std::copy_n(here.data() + one.here, one.size, there.data() + one.there);
      }
    }
    ASSERT_NO_FATAL_FAILURE(PostAll(p, requests));
    for (uint32_t i = 0; i < requests.size(); i++) {
      const Completion sent = p.local.Poll(p.pair.local, Queue::kSend);
      ASSERT_TRUE(sent.found) << i;
      ASSERT_EQ(sent.wc.status, IBV_WC_SUCCESS) << i << ": " << Describe(sent);
      ASSERT_EQ(sent.wc.wr_id, i);
    }
    for (uint32_t i = 0; i < requests.size(); i++) {
      if (!requests[i].takes_receive()) continue;
      const Completion received = p.remote.Poll(p.pair.remote, Queue::kReceive);
      ASSERT_TRUE(received.found) << i;
      ASSERT_EQ(received.wc.status, IBV_WC_SUCCESS) << i << ": " << Describe(received);
      EXPECT_EQ(received.wc.wr_id, i);
      EXPECT_EQ(received.wc.byte_len, requests[i].size);
    }
    EXPECT_TRUE(std::equal(here.begin(), here.end(), p.here.bytes().begin()));
    EXPECT_TRUE(std::equal(there.begin(), there.end(), p.there.bytes().begin()));
    EXPECT_TRUE(GuardsIntact());
    if (testing::Test::IsSkipped()) return;
  }
}

TEST_P(PayloadMix, EffectsAreInTheOrderOfPosting) { ExpectEffectsInOrder(GetParam(), {}); }

// A thread that blocks in ibv_get_cq_event may make copies for its device before it sleeps.
TEST_P(PayloadMix, EffectsAreInTheOrderOfPostingForThreadsThatSleep) {
  QpSpec spec;
  spec.sleeps = true;
  ExpectEffectsInOrder(GetParam(), spec);
}

// Messages of mixed sizes in one direction. Both sides keep several in flight.
struct Stream {
  static constexpr uint32_t kMessages = 5000, kInFlight = 4, kReceives = 8, kBuffer = 4096;
  static constexpr uint32_t kMixedSizes[] = {1, 124, 600, 256, 257, 7, 1000, 255, 60, 300};

  static uint32_t SizeOf(uint32_t message) {
    return kMixedSizes[(message * 2654435761u >> 8) % std::size(kMixedSizes)];
  }
};

// A device may place a small message later than its completion, as long as the program cannot see
// it. Larger messages to the same buffers force the device to place the small ones.
TEST_P(PayloadMix, AReceivedMessageIsInItsBufferWhenItsCompletionIsPolled) {
  PayloadPair p(GetParam(), Stream::kReceives * Stream::kBuffer, {});
  const auto post_receive = [&](uint32_t message) {
    WorkRequest receive{.wr_id = message};
    receive.Add(p.there.address() + message % Stream::kReceives * Stream::kBuffer, Stream::kBuffer,
                p.to.lkey);
    return p.remote.PostReceive(p.pair.remote, receive);
  };
  for (uint32_t i = 0; i < Stream::kReceives; i++) ASSERT_EQ(post_receive(i), 0);
  std::atomic<uint32_t> received = 0;
  std::atomic<bool> failed = false;
  std::thread sender([&] {
    for (uint32_t i = 0; i < Stream::kMessages && !failed; i++) {
      while (i >= received + Stream::kInFlight && !failed) std::this_thread::yield();
      const size_t slot = i % Stream::kReceives * Stream::kBuffer;
      const uint32_t size = Stream::SizeOf(i);
      std::ranges::fill(p.here.bytes().subspan(slot, size), static_cast<uint8_t>(i));
      WorkRequest send{.wr_id = i, .opcode = IBV_WR_SEND};
      send.Add(p.here.address() + slot, size, p.from.lkey);
      failed = failed || p.local.PostSend(p.pair.local, send) != 0;
      const Completion sent = p.local.Poll(p.pair.local, Queue::kSend);
      failed = failed || sent.wc.status != IBV_WC_SUCCESS;
    }
  });
  for (uint32_t i = 0; i < Stream::kMessages && !failed; i++) {
    const Completion completion = p.remote.Poll(p.pair.remote, Queue::kReceive);
    const auto there =
        p.there.bytes().subspan(i % Stream::kReceives * Stream::kBuffer, Stream::SizeOf(i));
    const auto expected = static_cast<uint8_t>(i);
    const bool is_there = std::ranges::all_of(there, [&](uint8_t b) { return b == expected; });
    failed = failed || !completion.found || completion.wc.status != IBV_WC_SUCCESS || !is_there;
    EXPECT_TRUE(is_there) << "message " << i << " of " << there.size() << " bytes";
    failed = failed || post_receive(i + Stream::kReceives) != 0;
    received++;
  }
  sender.join();
  EXPECT_FALSE(failed);
}

EACH_WAY_OF_SIDES(PayloadMix);

}  // namespace
}  // namespace rdma_contract
