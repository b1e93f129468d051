// A tool's connection to a running host: status, stop, and being a client that keeps it alive.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <span>
#include <string>

#include "emulator/abi/calls.h"
#include "emulator/base/result.h"
#include "emulator/base/time.h"
#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::runtime {

class HostClient {
 public:
  // A host that does not answer in this time is taken for hung (ETIMEDOUT).
  static constexpr std::chrono::seconds kTimeout{5};
  // A wait of less is none: what has come already is told.
  static constexpr std::chrono::milliseconds kAnswerTime{100};
  static constexpr std::chrono::hours kMostPatience{24 * 365};

  // ENOENT or ECONNREFUSED: no host listens there.
  static Result<HostClient> Connect(const std::string& socket_path);

  // A call that needs no Hello: its reply's bytes, or its errno. EPROTO, ECONNRESET, ETIMEDOUT.
  Result<std::string> Call(CallOp op, std::span<const std::byte> body, Duration limit = kTimeout);
  // JSON, see emulator/host/status.h.
  Result<std::string> Status();
  // Asks the host to end; it does so after it has answered.
  rdmaemu::Status Stop();
  // Changes the host's devices; the host answers when it is done. HostDevices says which errors.
  // `profile_toml`: of a device that is added, where its profile is not built in.
  rdmaemu::Status ChangeDevice(const ChangeDeviceIn& change, std::string_view profile_toml = {});
  // One of kFault* (emulator/abi/calls.h): the host's JSON text.
  Result<std::string> Fault(CallOp op, std::string_view text);
  // The host's answer when the rule has fired so often (kFaultWait). ETIMEDOUT: it has not, in so
  // much real time, of which the host has kAnswerTime at least; the connection is of no more use
  // then.
  Result<std::string> WaitForRule(std::string_view rule, uint64_t times, Duration timeout);
  // The host's clock, after it was told what `in` says (emulator/abi/calls.h).
  Result<ClockOut> Clock(const ClockIn& in);
  // Becomes a client: EPROTO from a host of another version.
  rdmaemu::Status Hello(const std::string& program);
  // The host's process.
  pid_t host_pid() const { return host_pid_; }

 private:
  rdmaemu::Status AwaitAnswer(Duration limit);
  HostClient(UniqueFd socket, pid_t host_pid) : socket_(std::move(socket)), host_pid_(host_pid) {}
  UniqueFd socket_;
  pid_t host_pid_;
};

}  // namespace rdmaemu::runtime
