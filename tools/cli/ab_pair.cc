// Runs a server and its client on one backend, for `rdmaemu ab`.
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "emulator/runtime/host_client.h"
#include "tools/cli/ab.h"
#include "tools/cli/commands.h"
#include "tools/cli/duration.h"
#include "tools/cli/environment.h"
#include "tools/cli/spawn.h"

namespace rdmaemu::cli {
namespace {

using Clock = std::chrono::steady_clock;

// The pause between two checks of a process doubles up to kLongestLook.
constexpr auto kFirstLook = std::chrono::milliseconds(2);
constexpr auto kLongestLook = std::chrono::milliseconds(100);

// The time between two signals to a program that must end.
constexpr auto kStopInterval = std::chrono::seconds(1);

// Calls `holds` until it returns true or the time is `end`. Returns the last result of `holds`.
template <class Holds>
bool LookUntil(Clock::time_point end, Holds holds) {
  for (Clock::duration pause = kFirstLook; !holds();
       pause = std::min<Clock::duration>(pause * 2, kLongestLook)) {
    const auto left = end - Clock::now();
    if (left <= Clock::duration::zero()) return false;
    std::this_thread::sleep_for(std::min(pause, left));
  }
  return true;
}

// Returns whether a program on the host of RDMAEMU_HOST listens by rdma_listen.
bool ListensOnHost() {
  const char* const name = std::getenv("RDMAEMU_HOST");
  const auto registry = runtime::Registry::Open();
  if (name == nullptr || !registry) return false;
  auto client = runtime::HostClient::Connect(registry->SocketPath(name));
  if (!client) return false;
  const Result<std::string> status = client->Status();
  const auto json = status ? nlohmann::json::parse(*status, nullptr, false) : nlohmann::json();
  return json.is_object() && !json.value("listeners", nlohmann::json::array()).empty();
}

std::vector<std::string> RunCommand(const AbPairRequest& request, const std::string& command,
                                    const char* role) {
  std::vector<std::string> run = {BinaryPath(), "run", "--backend", request.backend};
  if (request.backend == "emulator") {
    const char* const host = std::getenv("RDMAEMU_HOST");
    run.insert(run.end(), {"--host", host == nullptr ? "default" : host});
  }
  // The outer `run` has chosen the emulator's device.
  if (!request.device.empty() && request.backend == "system") {
    run.insert(run.end(), {"--device", request.device});
  }
  run.insert(run.end(),
             {"--program-trace", request.traces + "." + role, "--", "/bin/sh", "-c", command});
  return run;
}

int WriteStatuses(const AbPairRequest& request, const std::string& server,
                  const std::string& client) {
  std::ofstream file(request.traces + ".status");
  file << nlohmann::json{{"server", server}, {"client", client}}.dump() << "\n";
  file.close();
  return file ? 0 : Fail(kRunFailed, "cannot write " + request.traces + ".status");
}

// Sends SIGTERM to all programs that a `run` has started, until the `run` has ended. A shell need
// not forward signals, so each program gets the signal. A `run` that prepares its program gets the
// signal for processes that help it, and starts the program afterwards: therefore again and again.
void StopRun(pid_t run) {
  const auto has_ended = [run] { return HasEnded(run).has_value(); };
  do {
    std::vector<pid_t> tree = ProcessTree(run);
    // `run` ends when its program ends, so it gets no signal.
    if (tree.size() > 1) tree.erase(tree.begin());
    for (const pid_t process : tree) kill(process, SIGTERM);
  } while (!LookUntil(Clock::now() + kStopInterval, has_ended));
}

int CannotStart() {
  return Fail(kRunFailed, std::string("cannot start a process: ") + std::strerror(errno));
}

}  // namespace

int AbPair(const AbPairRequest& request) {
  const std::optional<Duration> limit = ParseDuration(request.timeout);
  if (!limit) return Fail(kUsage, NotADuration(request.timeout));
  const pid_t server = Spawn(RunCommand(request, request.server, "server"));
  if (server < 0) return CannotStart();
  std::optional<int> server_end;
  bool listens = false;
  LookUntil(Clock::now() + *limit, [&] {
    server_end = HasEnded(server);
    if (server_end) return true;
    const std::vector<pid_t> tree = ProcessTree(server);
    listens = ListensOnTcp(tree) ||
              (request.backend == "emulator" ? ListensOnHost() : ListensOnKernelDevice(tree));
    return listens;
  });
  if (server_end) return WriteStatuses(request, StatusText(*server_end), "not started");
  if (!listens) {
    StopRun(server);
    return Fail(kTimedOut, "the server did not listen in " + request.timeout + ": " +
                               request.server + "; give --timeout more");
  }
  const pid_t client = Spawn(RunCommand(request, request.client, "client"));
  if (client < 0) {
    const int status = CannotStart();
    StopRun(server);
    return status;
  }
  const int client_end = WaitFor(client);
  LookUntil(Clock::now() + *limit, [&] {
    server_end = HasEnded(server);
    return server_end.has_value();
  });
  if (server_end) return WriteStatuses(request, StatusText(*server_end), StatusText(client_end));
  // The server may run forever.
  StopRun(server);
  return WriteStatuses(request, "stopped", StatusText(client_end));
}

}  // namespace rdmaemu::cli
