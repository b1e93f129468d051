#include "tools/cli/program_trace/convert.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "shim/layer/trace/record.h"
#include "tools/cli/program_trace/lines.h"
#include "tools/cli/program_trace/recording.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace rdmaemu::cli {
namespace {

namespace fs = std::filesystem;
namespace format = layer::trace;

// Returns whether the processor's counter is the same on all processors and never stops.
bool HasSteadyTicks() {
#if defined(__x86_64__)
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) == 0) {
      return line.find(" constant_tsc") != line.npos && line.find(" nonstop_tsc") != line.npos;
    }
  }
  return false;
#elif defined(__aarch64__)
  return true;
#else
  return false;
#endif
}

uint64_t Nanoseconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

bool WriteControl(const std::string& path, bool has_ticks, uint64_t limit_bytes,
                  bool hashes_payloads) {
  format::Control control{};
  control.magic = format::kMagic;
  control.clock = has_ticks ? format::Clock::kTicks : format::Clock::kMonotonic;
  control.limit_bytes = limit_bytes;
  control.hashes_payloads = hashes_payloads ? 1 : 0;
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&control), sizeof control);
  file.close();
  return file.good();
}

// Returns whether programs can write to a mapping of a file. Some network file systems do not
// support such mappings.
bool CanShare(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return false;
  void* const memory =
      mmap(nullptr, sizeof(format::Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) return false;
  munmap(memory, sizeof(format::Control));
  return true;
}

// Returns why records were lost, and the remedy.
const char* WhyLost(format::Loss loss) {
  switch (loss) {
    case format::Loss::kLimit:
      return "the recording reached its limit; give a larger --program-trace-limit";
    case format::Loss::kDisk:
      return "the file system is full or RLIMIT_FSIZE is too small";
    case format::Loss::kFile:
      return "a process could not create a file in the recording's directory";
    case format::Loss::kHandler:
      return "signal handlers made calls while another handler wrote a record";
    case format::Loss::kCount:
      break;
  }
  return "";
}

}  // namespace

ProgramTrace::Moment ProgramTrace::Now(bool has_ticks) {
  if (!has_ticks) return {Nanoseconds(CLOCK_MONOTONIC), Nanoseconds(CLOCK_REALTIME)};
#if defined(__x86_64__)
  return {__rdtsc(), Nanoseconds(CLOCK_REALTIME)};
#elif defined(__aarch64__)
  uint64_t ticks;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return {ticks, Nanoseconds(CLOCK_REALTIME)};
#else
  return {0, 0};
#endif
}

tl::expected<ProgramTrace, std::string> ProgramTrace::Begin(const std::string& path,
                                                            uint64_t limit_bytes,
                                                            bool hashes_payloads) {
  ProgramTrace trace;
  trace.path_ = fs::absolute(path).string();
  if (!std::ofstream(trace.path_, std::ios::trunc)) {
    return tl::unexpected("cannot write --program-trace " + path + ": " + std::strerror(errno));
  }
  const bool has_ticks = HasSteadyTicks();
  std::string tried;
  std::error_code error;
  const std::string temporary = fs::temp_directory_path(error).string();
  for (const std::string& place :
       {trace.path_ + ".", temporary + "/rdmaemu-", std::string("/dev/shm/rdmaemu-")}) {
    std::string directory = place + "recording-XXXXXX";
    if (mkdtemp(directory.data()) != nullptr) {
      trace.directory_ = directory;
      const std::string control = directory + "/" + format::kControlFile;
      if (WriteControl(control, has_ticks, limit_bytes, hashes_payloads) && CanShare(control)) {
        trace.BindSocket();
        trace.begin_ = Now(has_ticks);
        return trace;
      }
      fs::remove_all(directory, error);
      trace.directory_.clear();
    }
    tried += (tried.empty() ? "" : ", ") + fs::path(place).parent_path().string();
  }
  return tl::unexpected(
      "no file system for the recording of --program-trace, where programs can"
      " map files that they write; tried " +
      tried);
}

void ProgramTrace::BindSocket() {
  socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const format::RecordingSocket name(directory_.c_str());
  if (socket_ >= 0) bind(socket_, name.address(), name.length());
}

void ProgramTrace::TakeUnopened(Recording& recording) const {
  char text[format::kMaxTextBytes];
  for (ssize_t bytes; (bytes = recv(socket_, text, sizeof text, 0)) > 0;) {
    const std::string whole(text, static_cast<size_t>(bytes));
    const size_t space = whole.find(' ');
    if (space == whole.npos) continue;
    recording.AddUnopened(
        {static_cast<uint32_t>(std::strtoul(text, nullptr, 10)), whole.substr(space + 1)});
  }
}

ProgramTrace::~ProgramTrace() {
  if (socket_ >= 0) close(socket_);
  std::error_code error;
  if (!directory_.empty()) fs::remove_all(directory_, error);
}

std::vector<std::string> ProgramTrace::End(pid_t child, int wait_status) {
  auto recording = Recording::Open(directory_);
  if (!recording) return {"the trace " + path_ + " is empty: " + recording.error()};
  TakeUnopened(*recording);
  const Moment end = Now(recording->has_ticks());
  const TraceClock clock{begin_.ticks, begin_.ns, end.ticks, end.ns};
  std::vector<std::string> errors;
  if (!TraceLines(path_, *recording, clock, {child, wait_status}).Write()) {
    errors.push_back("cannot write all of " + path_ + ": " + std::strerror(errno) +
                     "; is the file system full?");
  }
  for (uint32_t i = 0; i < static_cast<uint32_t>(format::Loss::kCount); i++) {
    const auto loss = static_cast<format::Loss>(i);
    if (recording->lost(loss) == 0) continue;
    errors.push_back("the trace " + path_ + " lacks " + std::to_string(recording->lost(loss)) +
                     " records: " + WhyLost(loss));
  }
  for (const UnopenedProcess& each : recording->unopened()) {
    errors.push_back("the trace " + path_ + " lacks process " + std::to_string(each.process) +
                     ": it could not open the recording: " + each.reason);
  }
  return errors;
}

}  // namespace rdmaemu::cli
