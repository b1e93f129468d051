#include "tools/cli/mounted_hosts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>

#include "tools/cli/duration.h"

namespace rdmaemu::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr auto kMovePollInterval = std::chrono::milliseconds(1);

uint64_t LengthOf(const std::string& path) {
  struct stat file;
  return stat(path.c_str(), &file) == 0 ? static_cast<uint64_t>(file.st_size) : 0;
}

// A file that a host writes.
class HostStream final : public Stream {
 public:
  HostStream(runtime::UniqueFd file, std::function<bool()> is_running)
      : file_(std::move(file)), is_running_(std::move(is_running)) {}

  Result<size_t> Read(uint64_t offset, std::span<char> out) override {
    Result<size_t> got = ReadOnce(offset, out);
    if (!got || *got > 0 || out.empty() || is_running_()) return got;
    got = ReadOnce(offset, out);  // reads the host's last writes
    if (!got || *got > 0) return got;
    return Fail(ENODEV);
  }

  uint64_t bytes() const override {
    struct stat file;
    return fstat(file_.get(), &file) == 0 ? static_cast<uint64_t>(file.st_size) : 0;
  }

 private:
  Result<size_t> ReadOnce(uint64_t offset, std::span<char> out) {
    for (;;) {
      const ssize_t got = pread(file_.get(), out.data(), out.size(), static_cast<off_t>(offset));
      if (got >= 0) return static_cast<size_t>(got);
      if (errno != EINTR) return Fail(errno);
    }
  }

  runtime::UniqueFd file_;
  std::function<bool()> is_running_;
};

}  // namespace

std::vector<std::string> MountedHosts::Names() {
  std::vector<std::string> names = registry_.Names();
  std::erase_if(names, [this](const std::string& name) { return !IsRunning(name); });
  return names;
}

bool MountedHosts::IsRunning(std::string_view host) {
  const std::string name(host);
  if (runtime::CheckHostName(name)) return false;
  // Makes no connection and no call. A connection would cost the host a turn, and a call would be a
  // record in its trace.
  return access(registry_.SocketPath(name).c_str(), F_OK) == 0 && registry_.IsLocked(name);
}

MountedHosts::OneHost& MountedHosts::Of(std::string_view host) {
  const std::lock_guard lock(mutex_);
  const auto found = hosts_.find(host);
  return found != hosts_.end() ? found->second : hosts_[std::string(host)];
}

Result<std::string> MountedHosts::Call(std::string_view host, CallOp op, std::string_view body) {
  const std::string name(host);
  if (runtime::CheckHostName(name)) return Fail(ENOENT);
  OneHost& one = Of(host);
  const std::lock_guard lock(one.calling);
  auto client = runtime::HostClient::Connect(registry_.SocketPath(name));
  if (!client) return Fail(client.error().code == EAGAIN ? ETIMEDOUT : ENOENT);
  if (one.silent_pid == client->host_pid() && SteadyClock::now() < one.silent_until) {
    return Fail(ETIMEDOUT);
  }
  const Result<std::string> answer = client->Call(op, std::as_bytes(std::span(body)), kAnswerLimit);
  const bool is_silent = !answer && answer.error().code == ETIMEDOUT;
  one.silent_pid = is_silent ? client->host_pid() : 0;
  if (is_silent) one.silent_until = SteadyClock::now() + kSilence;
  return answer;
}

Status MountedHosts::MoveClock(std::string_view host, std::string_view how) {
  ClockIn in{static_cast<uint32_t>(ClockAction::kRunUntilIdle), 0, 0};
  if (how != "run-until-idle") {
    const std::optional<Duration> by = ParseDuration(how);
    if (!by) return Fail(EINVAL);
    in.action = static_cast<uint32_t>(ClockAction::kAdvance);
    in.advance_ns = by->count();
  }
  for (const auto until = SteadyClock::now() + kMoveLimit;;) {
    const Result<std::string> answer =
        Call(host, CallOp::kClock, {reinterpret_cast<const char*>(&in), sizeof in});
    if (!answer) return Fail(answer.error().code);
    ClockOut out;
    if (answer->size() != sizeof out) return Fail(EIO);
    std::memcpy(&out, answer->data(), sizeof out);
    if (out.moving == 0) return {};
    if (SteadyClock::now() >= until) return Fail(ETIMEDOUT);
    std::this_thread::sleep_for(kMovePollInterval);
    in = {static_cast<uint32_t>(ClockAction::kShow), 0, 0};
  }
}

std::string MountedHosts::Refusal(std::string_view host) {
  OneHost& one = Of(host);
  const std::lock_guard lock(mutex_);
  return one.refusal;
}

void MountedHosts::SetRefusal(std::string_view host, std::string text) {
  OneHost& one = Of(host);
  const std::lock_guard lock(mutex_);
  one.refusal = std::move(text);
}

Result<std::string> MountedHosts::StreamPath(std::string_view host, StreamKind kind) {
  if (!IsRunning(host)) return Fail(ENOENT);
  const auto record = registry_.ReadRecord(host);
  if (!record) return Fail(ENOENT);
  const runtime::HostOptions& options = record->options;
  const std::string& path = kind == StreamKind::kTrace ? options.trace_path : options.pcap_path;
  if (path.empty()) return Fail(EOPNOTSUPP);
  return path;
}

Result<uint64_t> MountedHosts::StreamBytes(std::string_view host, StreamKind kind) {
  const Result<std::string> path = StreamPath(host, kind);
  if (path) return LengthOf(*path);
  if (path.error().code == EOPNOTSUPP) return 0;
  return Fail(path.error().code);
}

Result<std::unique_ptr<Stream>> MountedHosts::OpenStream(std::string_view host, StreamKind kind) {
  const Result<std::string> path = StreamPath(host, kind);
  if (!path) return Fail(path.error().code);
  runtime::UniqueFd file(open(path->c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return Fail(errno);
  const auto record = registry_.ReadRecord(host);
  const pid_t pid = record ? record->pid : 0;
  return std::make_unique<HostStream>(std::move(file), [this, name = std::string(host), pid] {
    const auto now = registry_.ReadRecord(name);
    return now && now->pid == pid && registry_.IsLocked(name);
  });
}

}  // namespace rdmaemu::cli
