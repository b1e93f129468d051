// Functions of rdmaemu.h for the time of the hosts in this process, or of the host process.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "emulator/embedded/call_host.h"
#include "emulator/embedded/last_error.h"
#include "emulator/embedded/process_host.h"
#include "rdmaemu/rdmaemu.h"

namespace rdmaemu::embedded {
namespace {

constexpr uint64_t kMaxAdvance_ns = uint64_t{1} << 60;  // 36 years
constexpr auto kLookAgain = std::chrono::milliseconds(1);

// Asks a host process about its clock. Returns 0 or a negative errno.
int AskClock(ClockAction action, uint64_t advance_ns, ClockOut& out) {
  const ClockIn in{static_cast<uint32_t>(action), 0, static_cast<int64_t>(advance_ns)};
  std::string reply;
  const int error = CallHost(CallOp::kClock, &in, sizeof in, &reply);
  if (error == -EOPNOTSUPP) {
    return Refuse(EOPNOTSUPP,
                  "the clock of this process's host cannot be advanced; start the host with "
                  "`rdmaemu run --clock manual`");
  }
  if (error == -EINVAL) {
    return Refuse(EINVAL, "the host cannot advance its time so far; advance it by at most a year");
  }
  if (error != 0) return error;
  if (reply.size() != sizeof out) return Refuse(EPROTO, "the host's answer about its clock is cut");
  std::memcpy(&out, reply.data(), sizeof out);
  return 0;
}

// Makes a host process advance its time, and waits until time has reached its target.
int MoveClock(ClockAction action, uint64_t advance_ns) {
  ClockOut out{};
  int error = AskClock(action, advance_ns, out);
  while (error == 0 && out.moving != 0) {
    // Sleep in the machine's time, because the host does not report when time has reached its
    // target.
    std::this_thread::sleep_for(kLookAgain);
    error = AskClock(ClockAction::kShow, 0, out);
  }
  return error;
}

}  // namespace
}  // namespace rdmaemu::embedded

using namespace rdmaemu;
using namespace rdmaemu::embedded;

int64_t rdmaemu_now() {
  int64_t now_ns = 0;
  const int result = AtDoor([&] {
    if (ProcessHost::Get().IsOpen()) {
      return WithHosts([&](EmbeddedHosts& hosts) {
        now_ns = hosts.Now().time_since_epoch().count();
        return 0;
      });
    }
    ClockOut out{};
    const int error = AskClock(ClockAction::kShow, 0, out);
    now_ns = out.now_ns;
    return error;
  });
  return result < 0 ? result : now_ns;
}

int rdmaemu_advance(uint64_t time_ns) {
  return AtDoor([&] {
    if (time_ns > kMaxAdvance_ns) {
      return Refuse(EINVAL, "time_ns is more than 36 years; is it a negative number?");
    }
    if (!ProcessHost::Get().IsOpen()) {
      return MoveClock(time_ns == 0 ? ClockAction::kShow : ClockAction::kAdvance, time_ns);
    }
    return WithHosts([&](EmbeddedHosts& hosts) {
      if (hosts.clock().runs()) {
        return Refuse(EOPNOTSUPP,
                      "this host's clock runs by itself; open it with .clock = \"virtual\" or "
                      "\"manual\"");
      }
      hosts.Advance(Duration(static_cast<int64_t>(time_ns)));
      return 0;
    });
  });
}

int rdmaemu_run_until_idle() {
  return AtDoor([] {
    if (!ProcessHost::Get().IsOpen()) return MoveClock(ClockAction::kRunUntilIdle, 0);
    return WithHosts([](EmbeddedHosts& hosts) {
      if (hosts.RunUntilIdle()) return 0;
      return Refuse(ELOOP,
                    "the host never becomes idle: new work becomes due without end, for example "
                    "because of a rule that repeats; rdmaemu_timeline shows the work");
    });
  });
}

int rdmaemu_wait(uint64_t timeout_ms) {
  return AtDoor([&] {
    const std::chrono::milliseconds limit(std::min(timeout_ms, kMaxWait_ms));
    switch (const int error = ProcessHost::Get().WaitForWork(limit)) {
      case 0:
        return 0;
      case ENOENT:
        return RefuseWithoutHost();
      case ETIMEDOUT:
        return Refuse(error, "nothing happened on any host in this time");
      case EDEADLK:
        return Refuse(error, "every thread of the program waits, and nothing is due on any host");
      default:
        return Refuse(error, "the wait has ended: " + std::string(std::strerror(error)));
    }
  });
}
