#include "emulator/runtime/trace_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

#include "emulator/runtime/clock.h"

namespace rdmaemu::runtime {
namespace {

constexpr auto kLockRetry = std::chrono::milliseconds(10);

// Traces and captures have the data of programs, so that only their user reads them. A host in the
// background has a umask that makes the same files.
constexpr mode_t kFileMode = 0600;

// Refuses two kinds of files. A path to a descriptor (/dev/stdout) names another file in the host
// process than in the caller. A pipe could block the host, because its reader may be missing or
// slow.
OrMessage<void> RefuseFile(const std::string& path, const char* option) {
  for (const char* own :
       {"/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd/", "/dev/tty", "/proc/self/"}) {
    if (!path.starts_with(own)) continue;
    return tl::unexpected("cannot write " + path +
                          ": the host is another process, with other open files; give " + option +
                          " the path of a file");
  }
  struct stat file;
  if (path.empty() || stat(path.c_str(), &file) != 0 || !S_ISFIFO(file.st_mode)) return {};
  return tl::unexpected("cannot write " + path +
                        ": it is a pipe, whose reader could stop the host; give " + option +
                        " a file");
}

// Returns false if another process held the lock the whole time. On a file system without locks,
// returns true.
bool LockAlone(int fd, std::chrono::seconds patience) {
  const auto end = RealNow() + patience;
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return true;
    if (RealNow() >= end) return false;
    std::this_thread::sleep_for(kLockRetry);
  }
  return true;
}

}  // namespace

Duration WallClockOffset(Time now) {
  timespec wall;
  clock_gettime(CLOCK_REALTIME, &wall);
  return std::chrono::seconds(wall.tv_sec) + std::chrono::nanoseconds(wall.tv_nsec) -
         now.time_since_epoch();
}

OrMessage<void> AppendFile::Create(const std::string& path, const char* option) {
  fd_.Reset(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, kFileMode));
  path_ = path;
  if (!fd_) {
    return tl::unexpected("cannot write " + path + ": " + std::strerror(errno) + "; give " +
                          option + " a file in a directory that you can write to");
  }
  // Two writers conflict only in regular files. Devices and pipes have no end of file.
  struct stat file;
  if (fstat(fd_.get(), &file) != 0 || !S_ISREG(file.st_mode)) return {};
  if (!LockAlone(fd_.get(), kOtherWriterPatience)) {
    fd_.Reset();
    return tl::unexpected("cannot write " + path +
                          ": another host, or another option of this one, writes it; give " +
                          option + " a file of its own");
  }
  // O_TRUNC is not used because it would empty a file that another host writes.
  if (ftruncate(fd_.get(), 0) == 0) return {};
  return tl::unexpected("cannot empty " + path + ": " + std::strerror(errno) + "; give " + option +
                        " another file");
}

void AppendFile::Appended() {
  if (buffer_.size() >= kMaxBufferedBytes) Flush();
}

void AppendFile::Flush() {
  std::string_view rest = buffer_;
  while (!rest.empty() && fd_) {
    const ssize_t written = write(fd_.get(), rest.data(), rest.size());
    if (written > 0) {
      rest.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR) {
      error_ = std::strerror(errno);
      fprintf(stderr, "error: cannot write %s: %s; the rest of it is lost\n", path_.c_str(),
              error_.c_str());
      fd_.Reset();
    }
  }
  buffer_.clear();
}

OrMessage<void> TraceFiles::Open(const HostOptions& options, Time now) {
  // At once: time passes while the files are created.
  const Duration wall_offset = WallClockOffset(now);
  if (const auto file = RefuseFile(options.trace_path, "--trace"); !file) return file;
  if (const auto file = RefuseFile(options.pcap_path, "--pcap"); !file) return file;
  if (!options.trace_path.empty()) {
    if (const auto made = json_file_.Create(options.trace_path, "--trace"); !made) return made;
    json_.emplace(options.name);
  }
  if (!options.pcap_path.empty()) {
    if (const auto made = pcap_file_.Create(options.pcap_path, "--pcap"); !made) return made;
    pcap_.emplace(wall_offset, options.name);
    pcap_->AppendStart(pcap_file_.buffer());
    pcap_file_.Flush();  // a capture without packets can be opened, too
  }
  return {};
}

OrMessage<void> TraceFiles::Check() {
  Flush();
  for (const State& file : States()) {
    if (file.error.empty()) continue;
    return tl::unexpected("cannot write " + file.path + ": " + file.error + "; give " +
                          file.option + " a file on a disk that has room");
  }
  return {};
}

void TraceFiles::Flush() {
  json_file_.Flush();
  pcap_file_.Flush();
}

void TraceFiles::Close() {
  json_file_.Close();
  pcap_file_.Close();
}

std::vector<TraceFiles::State> TraceFiles::States() const {
  std::vector<State> states;
  if (json_) states.push_back({"--trace", json_file_.path(), json_file_.error()});
  if (pcap_) states.push_back({"--pcap", pcap_file_.path(), pcap_file_.error()});
  return states;
}

void TraceFiles::Write(const trace::Record& record) {
  if (!json_) return;
  json_->Append(record, json_file_.buffer());
  json_file_.Appended();
}

void TraceFiles::WritePacket(Time time, const wire::UdpFlow& flow,
                             std::span<const std::byte> udp_payload) {
  if (!pcap_) return;
  pcap_->AppendPacket(time, flow, udp_payload, pcap_file_.buffer());
  pcap_file_.Appended();
}

}  // namespace rdmaemu::runtime
