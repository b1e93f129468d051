// The layout of a recording: what the layer writes while a program runs, and `rdmaemu run` converts
// to the JSON lines of docs/trace.md when it has ended. Both come from one build.
//
// A recording is a directory with the file `control` and two files for each thread. The thread
// writes records into its window, a file mapped into the program, so that no record needs a lock or
// a system call and the end of the process (SIGKILL, exec, _exit) loses none. A full window is
// appended to the thread's log. A record of size 0 ends a window.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rdmaemu::layer::trace {

inline constexpr uint64_t kMagic = 0x31454341'52544d45;  // "EMTRACE1"
inline constexpr const char* kControlFile = "control";

inline constexpr const char* kWindowSuffix = ".window";
inline constexpr const char* kLogSuffix = ".log";

// With its header. Small enough to stay in a processor's cache.
inline constexpr size_t kWindowBytes = 64 << 10;
// No record is larger. Longer lists and texts are cut, and say so.
inline constexpr size_t kMaxRecordBytes = 8 << 10;
// In the count before an array: there were more elements.
inline constexpr uint16_t kArrayIsCut = 0x8000;
// What a list leaves for the fields behind it.
inline constexpr size_t kListReserveBytes = 2 << 10;
inline constexpr size_t kMaxTextBytes = 256;
inline constexpr size_t kMaxArgumentBytes = 3 << 10;  // of the program's command line
inline constexpr size_t kMaxPathTextBytes = 1 << 10;
// Work completions in one record; ibv_poll_cq may bring more, which follow in further records.
inline constexpr int kMaxCompletionsPerRecord = 64;
// After a window could not be made, so many records are lost before the next attempt.
inline constexpr uint32_t kRecordsBetweenAttempts = 1000;

enum class Clock : uint32_t {
  kTicks,      // the processor's counter (TSC, CNTVCT), the same for all processes
  kMonotonic,  // clock_gettime(CLOCK_MONOTONIC), nanoseconds
};

// Why records are lost.
enum class Loss : uint32_t {
  kLimit,    // the recording has its limit's size
  kDisk,     // the file system is full, or RLIMIT_FSIZE forbids a file
  kFile,     // the process cannot create a file in the recording's directory
  kHandler,  // a signal handler interrupted a record of its own thread
  kCount,
};

struct Control {
  uint64_t magic;
  Clock clock;
  std::atomic<uint32_t> images;  // process images that have recorded anything
  uint64_t limit_bytes;
  std::atomic<uint64_t> used_bytes;
  std::atomic<uint64_t> lost[static_cast<size_t>(Loss::kCount)];
};

// At the beginning of a window.
struct WindowHeader {
  uint64_t magic;
  uint32_t process;  // pid
  uint32_t image;    // from Control::images: a process has several when it calls exec
  uint32_t thread;   // number in the process, from 1
  uint32_t unused;
  uint64_t position;  // where in the log the window's records go; a longer log has them already
  uint64_t reserved[4];
};
static_assert(sizeof(WindowHeader) == 64);

enum class RecordKind : uint8_t {
  kStart = 1,    // of a process image: StartRecord, then texts
  kFork,         // the first of a forked child: ForkRecord
  kEnd,          // exit handlers ran
  kInputs,       // a call begins: CallRecord, then its arguments
  kOutputs,      // and returns: CallRecord, result, errno, then what it gave
  kCall,         // a data-path call as a whole: result, errno if it failed, arguments
  kEmptyPolls,   // consecutive polls that found nothing: EmptyPollsRecord
  kCompletions,  // work completions that the call before brought: CQ, count, ibv_wc
};

struct RecordHeader {
  uint16_t bytes;      // with this header, a multiple of 8; written last
  uint16_t what : 12;  // CallId
  uint16_t kind : 4;   // RecordKind
  float took;          // of kCall, kEmptyPolls: from its begin to `time`
  uint64_t time;       // of the clock: when the call began (kInputs) or returned
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
  uint32_t number;     // in the thread: joins kInputs and kOutputs
  uint32_t is_inside;  // made by the libraries themselves, not by the program
};

struct EmptyPollsRecord {
  RecordHeader header;  // its time is when the last one returned
  uint64_t count;
  uint64_t cq;
  int64_t wanted;  // entries asked for; -1: ibv_start_poll
};

}  // namespace rdmaemu::layer::trace
