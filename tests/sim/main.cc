// Runs the simulation by hand: one seed again, a range of seeds, or as many seeds as fit in some
// minutes.
#include <CLI/CLI.hpp>
#include <chrono>
#include <fstream>
#include <iostream>
#include <limits>

#include "tests/sim/seeds.h"

namespace rdmaemu::sim {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  bazel run //tests/sim -- --seed 4711              repeat one run and tell its story\n"
    "  bazel run -c opt //tests/sim -- --seeds 1..10000  what CI runs\n"
    "  bazel run -c opt //tests/sim -- --minutes 10      new seeds, with progress\n"
    "  bazel run //tests/sim -- --cm --seed 4711         any call of RDMA CM at any moment\n"
    "Exits with 1 when a run failed.";

struct Options {
  bool cm = false;
  uint64_t seed = 0;
  std::string range;
  double minutes = 0;
  std::string trace_path;
};

bool ParseRange(const std::string& text, uint64_t& first, uint64_t& last) {
  const size_t dots = text.find("..");
  if (dots == std::string::npos) return false;
  const auto parse = [](const std::string& digits, uint64_t& out) {
    size_t used = 0;
    if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos) return false;
    out = std::stoull(digits, &used);
    return used == digits.size();
  };
  return parse(text.substr(0, dots), first) && parse(text.substr(dots + 2), last) && first <= last;
}

const Kind& KindOf(const Options& options) { return options.cm ? kCm : kTraffic; }

int RunOne(const Options& options) {
  std::ofstream trace;
  std::function<void(const std::string&)> lines;
  if (!options.trace_path.empty()) {
    trace.open(options.trace_path);
    if (!trace) {
      std::cerr << "error: cannot write " << options.trace_path << "\n";
      return 2;
    }
    lines = [&trace](const std::string& line) { trace << line; };
  }
  Tally tally;
  const Kind& kind = KindOf(options);
  const Outcome outcome = kind.run(options.seed, Recorder::Detail::kStory, tally, lines);
  if (!outcome.complaints.empty()) {
    std::cout << Report(kind, outcome);
    return 1;
  }
  std::cout << "seed " << outcome.seed << ": " << outcome.plan << "\n"
            << tally.ToText() << "ok, trace hash " << std::hex << outcome.hash << "\n";
  return 0;
}

int Finish(const Kind& kind, const Summary& summary) {
  std::cout << "what happened:\n" << summary.tally.ToText();
  for (const Outcome& failure : summary.failures) std::cout << "\n" << Report(kind, failure);
  std::cout << summary.runs << " runs, " << summary.failures.size() << " failed\n";
  return summary.failures.empty() ? 0 : 1;
}

int RunRange(const Kind& kind, uint64_t first, uint64_t last, double minutes) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  auto told = start;
  const auto more = [&](uint64_t runs, size_t failures) {
    const auto now = Clock::now();
    if (now - told >= std::chrono::seconds(10)) {
      told = now;
      std::cout << std::chrono::duration_cast<std::chrono::seconds>(now - start).count()
                << " s: " << runs << " runs, " << failures << " failed" << std::endl;
    }
    return minutes == 0 || now - start < std::chrono::duration<double, std::ratio<60>>(minutes);
  };
  return Finish(kind, RunSeeds(kind, first, last, more));
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Simulates hosts, a bad network and random programs, and checks what RDMA promises.");
  app.footer(kExamples);
  app.add_flag("--cm", options.cm, "Connection management alone: any call at any moment");
  CLI::Option* seed = app.add_option("--seed", options.seed, "Repeat this run")->type_name("N");
  CLI::Option* range = app.add_option("--seeds", options.range, "Run these, both ends included")
                           ->type_name("FROM..TO");
  CLI::Option* minutes =
      app.add_option("--minutes", options.minutes, "Run new seeds for so long, with progress")
          ->type_name("M")
          ->check(CLI::PositiveNumber);
  app.add_option("--trace", options.trace_path, "With --seed: write JSON lines to FILE")
      ->type_name("FILE")
      ->needs(seed);
  seed->excludes(range)->excludes(minutes);
  CLI11_PARSE(app, argc, argv);
  if (seed->count() > 0) return RunOne(options);
  uint64_t first = 1, last = 10'000;
  if (range->count() > 0 && !ParseRange(options.range, first, last)) {
    std::cerr << "error: --seeds wants FROM..TO, for example 1..100\n";
    return 2;
  }
  if (minutes->count() > 0 && range->count() == 0) {
    // Uses another range of seeds each time.
    first = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()) /
            1'000'000 % 1'000'000'000'000;
    last = std::numeric_limits<uint64_t>::max();
  }
  return RunRange(KindOf(options), first, last, options.minutes);
}

}  // namespace
}  // namespace rdmaemu::sim

int main(int argc, char** argv) { return rdmaemu::sim::Main(argc, argv); }
