// The fixture of the tests of copy jobs: two QPs of one host, whose program polls.
#pragma once

#include <cstring>

#include "emulator/transport/copy_jobs.h"
#include "emulator/transport/core.h"
#include "emulator/transport/harness.h"

namespace rdmaemu::transport::testing {

inline constexpr uint32_t kSize = 64 * 1024;

class CopyJobsTest : public ::testing::Test {
 protected:
  CopyJobsTest() : world(/*local=*/true) {
    EXPECT_TRUE(world.a.verbs.DoorbellSpan(kGroup));
    world.a.verbs.ProcessJoined(kGroup, kProcess);
    world.a.memory.pids[kProcess] = 4711;
    jobs = &world.a.verbs.Doorbells(kGroup).jobs;
    x = world.Make(world.a, IBV_QPT_RC, 4 * kSize);
    y = world.Make(world.a, IBV_QPT_RC, 4 * kSize);
    world.Join(x, y);
    FillBlocks(x.buffer);
    FillPattern(y.buffer, 200);
  }
  // Fills each block of kSize bytes differently. FillPattern repeats itself after 64 KiB.
  static void FillBlocks(std::span<std::byte> bytes) {
    for (size_t at = 0; at < bytes.size(); at += kSize) {
      FillPattern(bytes.subspan(at, std::min<size_t>(kSize, bytes.size() - at)),
                  static_cast<uint32_t>(1 + at / kSize));
    }
  }
  void Write(uint64_t wr_id, size_t at) {
    x.Post(RdmaWr(IBV_WR_RDMA_WRITE, wr_id, y, at), {x.Sge(at, kSize)});
    world.Ring(x);
  }
  // Runs the host's work. Time does not advance, so no offer ends.
  void Work() {
    while (world.a.engine.Work(world.now)) {
    }
  }
  void Poll() { jobs->polls++; }
  bool Arrived(size_t at) const {
    return std::equal(x.buffer.begin() + static_cast<long>(at),
                      x.buffer.begin() + static_cast<long>(at + kSize),
                      y.buffer.begin() + static_cast<long>(at));
  }
  CopyJob& Job(uint32_t number) { return jobs->jobs[number % JobPage::kSlots]; }
  // Does the work of the program's thread on an offered job.
  void Take(uint32_t number) { ASSERT_TRUE(Job(number).Claim(CopyJob::kTaken)); }
  void Do(uint32_t number) {
    CopyJob& job = Job(number);
    uint64_t done = 0;
    const auto at = [](const CopyRange& range) { return reinterpret_cast<char*>(range.address); };
    ASSERT_EQ(job.own_count, 1u);
    ASSERT_EQ(job.other_count, 1u);
    done = job.own[0].length;
    ASSERT_EQ(job.other[0].length, done);
    if (job.pull != 0) {
      std::memcpy(at(job.own[0]), at(job.other[0]), done);
    } else {
      std::memcpy(at(job.other[0]), at(job.own[0]), done);
    }
    job.End(number, CopyJob::kDone);
  }
  // Runs the host's work, and makes the copy that it has offered.
  void CopyNext(uint32_t number) {
    Work();
    ASSERT_GT(jobs->offered, number);
    Take(number);
    Do(number);
  }
  void ExpectSent(std::vector<uint64_t> wr_ids, ibv_wc_status status = IBV_WC_SUCCESS) {
    const auto sent = x.Sent();
    ASSERT_EQ(sent.size(), wr_ids.size());
    for (size_t i = 0; i < sent.size(); i++) {
      EXPECT_EQ(sent[i].wr_id, wr_ids[i]);
      EXPECT_EQ(sent[i].status, uint32_t{status});
    }
  }

  World world;
  JobPage* jobs;
  Endpoint x, y;
};

}  // namespace rdmaemu::transport::testing
