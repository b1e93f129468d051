#include "tools/cli/replay.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>
#include <utility>

#include "emulator/runtime/host_setup.h"

namespace rdmaemu::cli {
namespace {

namespace fs = std::filesystem;
using SortedJson = nlohmann::json;

// The time for the host to detect the end of the program's processes, and for processes that
// outlive the program.
constexpr auto kEndOfProgram = std::chrono::seconds(2);
constexpr auto kTracePollInterval = std::chrono::milliseconds(2);
// The time for messages of other hosts to arrive after the programs have ended, and the interval at
// which the trace is read meanwhile.
constexpr auto kLastMessages = std::chrono::seconds(2);
constexpr auto kTraceReadInterval = std::chrono::milliseconds(20);

runtime::OrMessage<trace::Run> ReadRun(const std::string& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) return tl::unexpected("cannot read the trace " + path + ": " + error.message());
  if (size > Replay::kMaxTraceBytes) {
    return tl::unexpected("the trace " + path +
                          " is longer than 1 GiB and is not compared; record a shorter run");
  }
  std::string text(size, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(size));
  text.resize(static_cast<size_t>(file.gcount()));
  auto run = trace::ParseRun(text);
  if (!run) return tl::unexpected("cannot compare with the trace " + path + ": " + run.error());
  return std::move(*run);
}

// Returns the number of other clients of the host.
size_t Others(runtime::HostClient& client) {
  const Result<std::string> status = client.Status();
  const SortedJson json = status ? SortedJson::parse(*status, nullptr, false) : SortedJson();
  size_t clients = 0;
  if (!json.is_object()) return 0;
  for (const SortedJson& each : json.value("clients", SortedJson::array())) {
    if (each.value("group", 0u) != 0) clients++;
  }
  return clients - (clients > 0 ? 1 : 0);
}

// Checks options that would overwrite the trace, or that contradict its run. Returns the message.
std::optional<std::string> Contradiction(const std::string& path, const std::string& seed,
                                         const runtime::HostOptions& options) {
  const std::pair<const char*, const std::string*> written[] = {{"--trace", &options.trace_path},
                                                                {"--pcap", &options.pcap_path}};
  for (const auto& [option, file] : written) {
    std::error_code error;
    if (!fs::equivalent(path, *file, error)) continue;
    return std::string(option) + " would overwrite " + path +
           ", which --replay reads; give it another file";
  }
  const auto asked = runtime::ParseSeed(options.seed);
  if (options.seed.empty() || (asked && runtime::SeedText(*asked) == seed)) return std::nullopt;
  return "--seed " + options.seed + " is not the seed of " + path + ", which is " + seed +
         "; --replay takes it from there, so omit --seed";
}

std::string Who(uint32_t process) {
  return process == 0 ? "the host" : "process " + std::to_string(process);
}

std::string OrEnd(const std::string& decision) {
  return decision.empty() ? "no more of it" : decision;
}

}  // namespace

runtime::OrMessage<Replay> Replay::Open(const std::string& path, const runtime::Registry& registry,
                                        runtime::HostOptions& options) {
  auto earlier = ReadRun(path);
  if (!earlier) return tl::unexpected(earlier.error());
  if (earlier->seed.empty()) {
    return tl::unexpected(
        "the trace " + path +
        " names no seed, so its run cannot be repeated; record it with --seed N --trace " + path);
  }
  if (const auto wrong = Contradiction(path, earlier->seed, options)) return tl::unexpected(*wrong);
  options.seed = earlier->seed;
  Replay replay;
  if (options.trace_path.empty()) {
    options.trace_path = replay.removed_ = registry.ReplayPath(options.name);
  }
  replay.path_ = path;
  replay.new_path_ = options.trace_path;
  replay.earlier_ = std::move(*earlier);
  replay.follower_.emplace(replay.earlier_);
  return replay;
}

Replay::Replay(Replay&& other) noexcept { *this = std::move(other); }

Replay& Replay::operator=(Replay&& other) noexcept {
  path_ = std::move(other.path_);
  new_path_ = std::move(other.new_path_);
  removed_ = std::exchange(other.removed_, {});
  earlier_ = std::move(other.earlier_);
  follower_ = std::move(other.follower_);
  looked_at_ = other.looked_at_;
  return *this;
}

Replay::~Replay() {
  if (!removed_.empty()) unlink(removed_.c_str());
}

void Replay::Look() {
  std::ifstream file;
  if (follower_) file.open(new_path_, std::ios::binary);
  if (!file.is_open() || looked_at_ >= kMaxTraceBytes) return;
  file.seekg(static_cast<std::streamoff>(looked_at_));
  std::string text(kMaxBytesALook, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  std::string_view left = text;
  for (size_t end; follower_ && (end = left.find('\n')) != left.npos; left.remove_prefix(end + 1)) {
    const auto departure = follower_->Take(left.substr(0, end));
    looked_at_ += end + 1;
    if (departure && *departure) Say("warning", "now leaves", **departure);
    if (!departure || *departure) follower_.reset();  // Report prints errors of the trace
  }
}

void Replay::Say(const char* severity, const char* when, const trace::Departure& departure) const {
  const std::string where =
      departure.line == 0 ? "its end" : "line " + std::to_string(departure.line);
  fprintf(stderr, "%s: the run %s %s at %s, %s: there %s, here %s\n", severity, when, path_.c_str(),
          where.c_str(), Who(departure.process).c_str(), OrEnd(departure.earlier).c_str(),
          OrEnd(departure.later).c_str());
}

bool Replay::Report(runtime::HostClient& client) const {
  using Clock = std::chrono::steady_clock;
  for (const auto end = Clock::now() + kEndOfProgram; Others(client) > 0 && Clock::now() < end;) {
    std::this_thread::sleep_for(kTracePollInterval);
  }
  std::optional<trace::Departure> departure;
  for (const auto end = Clock::now() + kLastMessages;;) {
    // The host flushes its trace before it answers.
    (void)client.Clock({static_cast<uint32_t>(ClockAction::kShow), 0, 0});
    const auto later = ReadRun(new_path_);
    if (!later) {
      fprintf(stderr, "error: %s\n", later.error().c_str());
      return false;
    }
    departure = trace::FirstDeparture(earlier_, *later);
    // A message of another host may still be in flight.
    if (!departure || !departure->later.empty() || Clock::now() >= end) break;
    std::this_thread::sleep_for(kTraceReadInterval);
  }
  if (!departure) {
    fprintf(stderr, "note: the run took the same %zu decisions as %s\n", earlier_.decisions.size(),
            path_.c_str());
    return true;
  }
  Say("error", "left", *departure);
  return false;
}

}  // namespace rdmaemu::cli
