#include "tests/sim/seeds.h"

#include <algorithm>
#include <mutex>
#include <thread>

namespace rdmaemu::sim {
namespace {

Outcome RunChecked(const Kind& kind, uint64_t seed, Tally& tally) {
  if (seed % kTwiceEvery != 0) return kind.run(seed, Recorder::Detail::kPackets, tally, {});
  Outcome first = kind.run(seed, Recorder::Detail::kRecords, tally, {});
  Tally second_tally;
  const Outcome second = kind.run(seed, Recorder::Detail::kRecords, second_tally, {});
  if (first.hash != second.hash) {
    first.complaints.push_back("determinism: the seed was run twice and did not do the same");
  }
  return first;
}

}  // namespace

Summary RunSeeds(const Kind& kind, uint64_t first, uint64_t last,
                 const std::function<bool(uint64_t, size_t)>& more) {
  Summary summary;
  std::mutex mutex;
  uint64_t next = first;
  const auto work = [&] {
    Tally tally;
    for (;;) {
      uint64_t seed;
      {
        const std::lock_guard lock(mutex);
        if (next > last || summary.failures.size() >= kMaxFailures ||
            !more(summary.runs, summary.failures.size())) {
          break;
        }
        seed = next++;
      }
      Outcome outcome = RunChecked(kind, seed, tally);
      const std::lock_guard lock(mutex);
      summary.runs++;
      if (!outcome.complaints.empty()) summary.failures.push_back(std::move(outcome));
    }
    const std::lock_guard lock(mutex);
    summary.tally.Add(tally);
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); i++) {
    threads.emplace_back(work);
  }
  for (std::thread& thread : threads) thread.join();
  std::ranges::sort(summary.failures, {}, &Outcome::seed);
  return summary;
}

std::string Report(const Kind& kind, const Outcome& failure) {
  // Repeats the run, this time with its story.
  Tally tally;
  const Outcome told = kind.run(failure.seed, Recorder::Detail::kStory, tally, {});
  std::string text = "seed " + std::to_string(failure.seed) + ": " + failure.plan + "\n";
  text += "the last of what happened:\n";
  for (const std::string& line : told.story) text += "  " + line + "\n";
  for (const std::string& complaint : failure.complaints) text += "FAILED " + complaint + "\n";
  text += std::string("bazel run //tests/sim -- ") + kind.option + "--seed " +
          std::to_string(failure.seed) + "\n";
  return text;
}

}  // namespace rdmaemu::sim
