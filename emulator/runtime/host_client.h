// A tool's connection to a running host: it queries the status, stops the host, or keeps the host
// alive as a client.
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
  // The time limit for the host's reply. Calls fail with ETIMEDOUT after it.
  static constexpr std::chrono::seconds kTimeout{5};
  // WaitForRule gives the host at least this time, so that a timeout of 0 still reports past
  // firings.
  static constexpr std::chrono::milliseconds kAnswerTime{100};
  static constexpr std::chrono::hours kMostPatience{24 * 365};

  // Connects to a host's socket. Fails with ENOENT or ECONNREFUSED if no host listens there.
  static Result<HostClient> Connect(const std::string& socket_path);
  // As Connect, but never blocks. Fails with EAGAIN if the host's queue of connections is full.
  // Call only Send and Receive of the result.
  static Result<HostClient> ConnectWithoutBlocking(const std::string& socket_path);

  // Sends a call that needs no Hello, without waiting for its reply.
  rdmaemu::Status Send(CallOp op, std::span<const std::byte> body = {});
  // Receives the reply of the last Send. Call this when `fd` is readable, because it blocks
  // otherwise. Returns the bytes of the reply, or the errno in the reply. Also fails with EPROTO or
  // ECONNRESET.
  Result<std::string> Receive();
  // The socket, for poll(2). The client owns it.
  int fd() const { return socket_.get(); }

  // Sends a call that needs no Hello. Returns the bytes of its reply, or the errno in the reply.
  // Also fails with EPROTO, ECONNRESET or ETIMEDOUT.
  Result<std::string> Call(CallOp op, std::span<const std::byte> body, Duration limit = kTimeout);
  // Returns the host's status as JSON (emulator/host/status.h).
  Result<std::string> Status(Duration limit = kTimeout);
  // Asks the host to end. The host replies before it ends.
  rdmaemu::Status Stop();
  // Changes the host's devices. The host replies when the change is complete. See HostDevices for
  // the errors. `profile_toml` is the profile of an added device if that profile is not built in.
  rdmaemu::Status ChangeDevice(const ChangeDeviceIn& change, std::string_view profile_toml = {});
  // Makes one of the kFault* calls (emulator/abi/calls.h) and returns the host's JSON text.
  Result<std::string> Fault(CallOp op, std::string_view text);
  // Waits until the rule has fired `times` times (kFaultWait) and returns the host's reply. Fails
  // with ETIMEDOUT if the rule fires less often within `timeout` of real time. The host gets at
  // least kAnswerTime. The connection cannot be used after ETIMEDOUT.
  Result<std::string> WaitForRule(std::string_view rule, uint64_t times, Duration timeout);
  // Applies `in` to the host's clock, then returns the state of the clock (emulator/abi/calls.h).
  Result<ClockOut> Clock(const ClockIn& in);
  // Reads a file that the host shows under /sys or /dev (CallOp::kReadFile). Returns ReadFileOut
  // and the bytes behind it. ENOENT, ENOTDIR, ENAMETOOLONG.
  Result<std::string> ReadFile(std::string_view path);
  // Becomes a client of the host. Fails with EPROTO if the host has another version.
  rdmaemu::Status Hello(const std::string& program);
  // The pid of the host's process.
  pid_t host_pid() const { return host_pid_; }

 private:
  static Result<HostClient> ConnectWith(const std::string& socket_path, int socket_flags);
  rdmaemu::Status AwaitAnswer(Duration limit);
  HostClient(UniqueFd socket, pid_t host_pid) : socket_(std::move(socket)), host_pid_(host_pid) {}
  UniqueFd socket_;
  pid_t host_pid_;
};

}  // namespace rdmaemu::runtime
