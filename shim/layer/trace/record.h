// The layout of a recording. The layer writes a recording while a program runs. `rdmaemu run`
// converts it to the JSON lines of docs/trace.md after the program has ended. Writer and reader are
// always of one build.
//
// A recording is a directory with the file `control` and two files per thread, a window and a log.
// A thread writes records into its window, a file that is mapped into the program. A record
// therefore needs no lock and no system call. The end of the process (SIGKILL, exec, _exit) loses
// no record. The thread appends a full window to its log. A record of size 0 ends a window.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rdmaemu::layer::trace {

inline constexpr uint64_t kMagic = 0x31454341'52544d45;  // "EMTRACE1"
inline constexpr const char* kControlFile = "control";

inline constexpr const char* kWindowSuffix = ".window";
inline constexpr const char* kLogSuffix = ".log";
// A process that cannot open the recording creates a symbolic link PID.unopened in its directory.
// The link's target is the reason. A link needs no file descriptor. The process may be unable to
// create the link, because it is in a chroot or has another user id. In this case the process sends
// "PID REASON" to the datagram socket that `run` has bound (RecordingSocket).
inline constexpr const char* kUnopenedSuffix = ".unopened";

// Includes the WindowHeader. A window of this size stays in a processor's cache.
inline constexpr size_t kWindowBytes = 64 << 10;
// The largest record, in bytes. Longer lists, byte strings and C strings are cut. The record then
// says that they were cut.
inline constexpr size_t kMaxRecordBytes = 8 << 10;
// Flag in the count before an array: the array had more elements.
inline constexpr uint16_t kArrayIsCut = 0x8000;
// Flag in the length before a C string: the string was longer.
inline constexpr uint16_t kTextIsCut = 0x8000;
// A list is cut when at most this space, in bytes, remains in the record. The fields behind the
// list need that space.
inline constexpr size_t kListReserveBytes = 2 << 10;
inline constexpr size_t kMaxTextBytes = 256;
inline constexpr size_t kMaxArgumentBytes = 3 << 10;  // of the program's command line
inline constexpr size_t kMaxPathTextBytes = 1 << 10;
// The most work completions in one record. When ibv_poll_cq returns more, kCompletions records with
// the rest follow.
inline constexpr int kMaxCompletionsPerRecord = 64;
// When a thread fails to create a window, it loses this many records before its next attempt.
inline constexpr uint32_t kRecordsBetweenAttempts = 1000;

enum class Clock : uint32_t {
  kTicks,      // the processor's counter (TSC, CNTVCT), the same for all processes
  kMonotonic,  // clock_gettime(CLOCK_MONOTONIC), nanoseconds
};

// The reasons why records are lost.
enum class Loss : uint32_t {
  kLimit,    // the recording would exceed Control::limit_bytes
  kDisk,     // the file system is full, or the file would exceed RLIMIT_FSIZE
  kFile,     // the process cannot create a file in the recording's directory
  kHandler,  // a signal handler interrupted a record of another handler of its thread
  kCount,
};

// The address of the recording's socket: an abstract name that ends as the directory's path.
class RecordingSocket {
 public:
  explicit RecordingSocket(const char* directory) {
    constexpr char kPrefix[] = "rdmaemu.";
    const size_t length = strlen(directory);
    const size_t taken = length < kMaxTaken ? length : kMaxTaken;
    address_.sun_family = AF_UNIX;
    memcpy(address_.sun_path + 1, kPrefix, sizeof kPrefix - 1);
    memcpy(address_.sun_path + sizeof kPrefix, directory + length - taken, taken);
    length_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + sizeof kPrefix + taken);
  }
  const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&address_); }
  socklen_t length() const { return length_; }

 private:
  static constexpr size_t kMaxTaken = 64;
  sockaddr_un address_{};
  socklen_t length_;
};

struct Control {
  uint64_t magic;
  Clock clock;
  uint32_t hashes_payloads;      // 0 or 1
  std::atomic<uint32_t> images;  // process images that have recorded anything
  uint64_t limit_bytes;
  std::atomic<uint64_t> used_bytes;
  std::atomic<uint64_t> lost[static_cast<size_t>(Loss::kCount)];
};

inline constexpr uint64_t kIsInLog = 1;  // lengths of a log are multiples of 8

// Flag in WindowHeader::thread: the window has the records of signal handlers that interrupted the
// thread while it wrote a record.
inline constexpr uint32_t kIsHandlers = uint32_t{1} << 31;

// At the beginning of a window.
struct WindowHeader {
  uint64_t magic;
  uint32_t process;  // pid
  uint32_t image;    // from Control::images; each exec begins a new image of the process
  uint32_t thread;   // number in the process, from 1; may have the flag kIsHandlers
  uint32_t unused;
  // The length of the log. Bytes beyond it are not records. The flag kIsInLog says that the log
  // already contains the window's records.
  uint64_t position;
  uint64_t reserved[4];
};
static_assert(sizeof(WindowHeader) == 64);

enum class RecordKind : uint8_t {
  kStart = 1,  // the first record of a process image: StartRecord, then texts
  kFork,       // the first record of a forked child: ForkRecord
  kEnd,        // exit handlers have run
  kInputs,     // a call starts: CallRecord, then its arguments
  // A call returns: CallRecord, errno, result, whether the call succeeded. On success the outputs
  // follow.
  kOutputs,
  // A whole data-path call: result, errno if it failed, arguments. A poll: result, errno if the
  // result is negative, CQ, wanted entries, completions. Before each completion there is a byte.
  // Its value is 2 if a PayloadHash is behind the completion, else 1.
  kCall,
  kEmptyPolls,   // consecutive polls without a completion: EmptyPollsRecord
  kCompletions,  // more work completions of the previous call: CQ, completions
  // A fault rule acted in the thread's current call, whose kOutputs or kCall follows:
  // InjectedRecord, then the rule's name.
  kInjected,
  // The hashes of the work requests that the thread's current call posts, before its kCall record:
  // their number, PayloadHash of each.
  kPayloads,
};

struct RecordHeader {
  uint16_t bytes;      // includes this header, a multiple of 8; written last
  uint16_t what : 12;  // CallId
  uint16_t kind : 4;   // RecordKind
  float took;          // of kCall, kEmptyPolls: clock units from the call's start to `time`
  uint64_t time;       // in clock units: when the call started (kInputs) or returned
};
static_assert(sizeof(RecordHeader) == 16);

struct StartRecord {
  RecordHeader header;
  uint32_t parent;
  uint32_t is_emulator;
};

struct ForkRecord {
  RecordHeader header;
  uint32_t parent;
  uint32_t parent_image;
};

struct CallRecord {
  RecordHeader header;
  uint32_t number;     // of the call in its thread; kInputs and kOutputs have the same
  uint32_t is_inside;  // a library made the call, not the program
};

struct InjectedRecord {
  RecordHeader header;
  uint32_t what;   // Injected (shim/layer/injected.h)
  uint32_t index;  // of Injected::kLine: the position among the call's events or completions
};

struct EmptyPollsRecord {
  RecordHeader header;  // its time is when the last poll returned
  uint64_t count;
  uint64_t cq;
  int64_t wanted;  // entries asked for; -1: ibv_start_poll
};

}  // namespace rdmaemu::layer::trace
