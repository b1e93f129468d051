// `rdmaemu clock`: the time of a running host.
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "tools/cli/commands.h"
#include "tools/cli/duration.h"
#include "tools/cli/running_host.h"

namespace rdmaemu::cli {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(1);

std::string Seconds(int64_t ns) {
  char text[32];
  snprintf(text, sizeof text, "%.6f", static_cast<double>(ns) / 1e9);
  return text;
}

// A connection to one host for several queries.
class ClockOfHost {
 public:
  // On failure prints the error and returns the exit status.
  static tl::expected<ClockOfHost, int> Find(const std::string& host) {
    const auto registry = runtime::Registry::Open();
    if (!registry) return tl::unexpected(Fail(kFailed, registry.error()));
    auto client = runtime::HostClient::Connect(registry->SocketPath(host));
    if (!client) return tl::unexpected(Fail(kFailed, NotRunningMessage(*registry, host)));
    return ClockOfHost(host, std::move(*client));
  }

  tl::expected<ClockOut, int> Ask(ClockAction action, Duration by = {}) {
    const Result<ClockOut> out = client_.Clock({static_cast<uint32_t>(action), 0, by.count()});
    if (out) return *out;
    switch (out.error().code) {
      case EOPNOTSUPP:
        // Each clock of an emulated host can be shown.
        if (!client_.Clock({static_cast<uint32_t>(ClockAction::kShow), 0, 0})) {
          return tl::unexpected(
              Fail(kFailed, "host " + host_ +
                                " belongs to rdmaemu run --backend system, so its time is the "
                                "machine's and cannot be changed"));
        }
        return tl::unexpected(
            Fail(kFailed, "the clock of host " + host_ +
                              " cannot be advanced; start the host with --clock manual"));
      case EINVAL:
        return tl::unexpected(
            Fail(kFailed,
                 "host " + host_ +
                     " cannot advance its time so far; advance it by less, or restart the host"));
      case ETIMEDOUT:
        return tl::unexpected(Fail(kFailed, HungMessage(host_, client_.host_pid())));
      default:
        return tl::unexpected(Fail(kFailed, VersionMessage(host_, client_.host_pid())));
    }
  }

  // Makes the host advance its time, and waits until time has reached its target.
  int Move(ClockAction action, Duration by) {
    auto out = Ask(action, by);
    while (out && out->moving != 0) {
      std::this_thread::sleep_for(kPollInterval);
      out = Ask(ClockAction::kShow);
    }
    if (!out) return out.error();
    printf("%s s%s\n", Seconds(out->now_ns).c_str(),
           out->awaits_application != 0 ? "; the hosts wait for a program" : "");
    return 0;
  }

 private:
  ClockOfHost(std::string host, runtime::HostClient client)
      : host_(std::move(host)), client_(std::move(client)) {}

  std::string host_;
  runtime::HostClient client_;
};

}  // namespace

int ClockShow(const std::string& host, bool json) {
  auto clock = ClockOfHost::Find(host);
  if (!clock) return clock.error();
  const auto out = clock->Ask(ClockAction::kShow);
  if (!out) return out.error();
  if (json) {
    const nlohmann::ordered_json text = {{"clock", out->mode},
                                         {"now_ns", out->now_ns},
                                         {"moving", out->moving != 0},
                                         {"awaits_application", out->awaits_application != 0}};
    printf("%s\n", text.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  } else {
    printf("%s: %s s%s\n", out->mode, Seconds(out->now_ns).c_str(),
           out->awaits_application != 0 ? "; the hosts wait for a program" : "");
  }
  return 0;
}

int ClockAdvance(const std::string& host, const std::string& by) {
  const std::optional<Duration> length = ParseDuration(by);
  if (!length) return Fail(kUsage, NotADuration(by));
  auto clock = ClockOfHost::Find(host);
  return clock ? clock->Move(ClockAction::kAdvance, *length) : clock.error();
}

int ClockRunUntilIdle(const std::string& host) {
  auto clock = ClockOfHost::Find(host);
  return clock ? clock->Move(ClockAction::kRunUntilIdle, {}) : clock.error();
}

}  // namespace rdmaemu::cli
