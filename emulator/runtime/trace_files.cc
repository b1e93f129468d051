#include "emulator/runtime/trace_files.h"

#include <fcntl.h>
#include <time.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace rdmaemu::runtime {
namespace {

// Adds up with the host's time to the time of day.
Duration WallClockOffset(Time now) {
  timespec wall;
  clock_gettime(CLOCK_REALTIME, &wall);
  return std::chrono::seconds(wall.tv_sec) + std::chrono::nanoseconds(wall.tv_nsec) -
         now.time_since_epoch();
}

}  // namespace

OrMessage<void> AppendFile::Create(const std::string& path, const char* option) {
  fd_.Reset(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  path_ = path;
  if (fd_) return {};
  return tl::unexpected("cannot write " + path + ": " + std::strerror(errno) + "; give " + option +
                        " a file in a directory that you can write to");
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
      fprintf(stderr, "error: cannot write %s: %s; the rest of it is lost\n", path_.c_str(),
              std::strerror(errno));
      fd_.Reset();
    }
  }
  buffer_.clear();
}

OrMessage<void> TraceFiles::Open(const HostOptions& options, Time now) {
  if (!options.trace_path.empty()) {
    if (const auto made = json_file_.Create(options.trace_path, "--trace"); !made) return made;
    json_.emplace(options.name);
  }
  if (!options.pcap_path.empty()) {
    if (const auto made = pcap_file_.Create(options.pcap_path, "--pcap"); !made) return made;
    pcap_.emplace(WallClockOffset(now), options.name);
    pcap_->AppendStart(pcap_file_.buffer());
    pcap_file_.Flush();  // a capture without packets is one that can be opened
  }
  return {};
}

void TraceFiles::Flush() {
  json_file_.Flush();
  pcap_file_.Flush();
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
