// Appends records to the window of the calling thread. All functions are thread-safe, except
// OpenRecording, which is for the constructor of the layer's libibverbs. A signal handler may also
// record. When it interrupts a record of its own thread, its records are in another window.
#pragma once

#include <time.h>

#include <cstring>

#include "shim/layer/caller.h"
#include "shim/layer/trace/record.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace rdmaemu::layer::trace {

// The position of one thread in its window. Only the thread itself uses its Thread.
struct Thread {
  // The process's generation when the window was created. A forked child has another generation.
  uint64_t generation;
  char *begin, *at, *end;
  EmptyPollsRecord* polls;  // the last record, if it is an empty-polls record; else nullptr
  uint64_t position;        // bytes in the log
  uint32_t number;
  uint32_t calls;
  uint32_t attempt_in;  // records to lose before the next attempt to create a window
  Loss why_not;         // why the last attempt failed
  bool is_writing;
};

}  // namespace rdmaemu::layer::trace

// The layer's libibverbs.so.1 exports these functions. The layer's librdmacm.so.1 calls them there.
extern "C" {
// Returns the calling thread, with room for one record and with is_writing set. Returns nullptr
// when the record is lost. Sets `time` to the record's time, at which is_writing is set already: a
// signal handler that interrupts the thread earlier records an earlier time.
RDMAEMU_LAYER_SHARED rdmaemu::layer::trace::Thread* rdmaemu_layer_begin_record(uint64_t* time);
RDMAEMU_LAYER_SHARED bool rdmaemu_layer_is_tracing();
// Returns whether the recording wants hashes of payloads.
RDMAEMU_LAYER_SHARED bool rdmaemu_layer_wants_hashes();
RDMAEMU_LAYER_SHARED uint64_t rdmaemu_layer_time();
}

namespace rdmaemu::layer::trace {

// Opens the recording in the directory that RDMAEMU_LAYER_TRACE names, if the variable is set. On
// failure prints an error, reports it to `run` (kUnopenedSuffix) and records nothing.
// `is_emulator`: the library behind is the emulator's.
void OpenRecording(bool is_emulator);

// Returns the time in units of the recording's clock (Control::clock).
inline uint64_t Now() { return rdmaemu_layer_time(); }

// A record under construction. The destructor commits the record. The object is false when the
// record is lost. Then only operator bool and the destructor may be called.
class Record {
 public:
  Record(RecordKind kind, uint16_t what) {
    uint64_t time = 0;
    thread_ = rdmaemu_layer_begin_record(&time);
    Begin(kind, what, time);
  }
  // `thread`: the result of rdmaemu_layer_begin_record, which may be nullptr.
  Record(Thread* thread, RecordKind kind, uint16_t what, uint64_t time) : thread_(thread) {
    Begin(kind, what, time);
  }
  ~Record() {
    if (thread_ == nullptr) return;
    auto* const header = reinterpret_cast<RecordHeader*>(thread_->at);
    const auto bytes = static_cast<uint16_t>((at_ - thread_->at + 7) & ~7);
    thread_->at += bytes;
    // The size 0 ends the window here. Older bytes may follow, from before the window was emptied.
    reinterpret_cast<RecordHeader*>(thread_->at)->bytes = 0;
    thread_->polls = is_polls_ ? reinterpret_cast<EmptyPollsRecord*>(header) : nullptr;
    __atomic_store_n(&header->bytes, bytes, __ATOMIC_RELEASE);
    __atomic_store_n(&thread_->is_writing, false, __ATOMIC_RELEASE);
  }
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;

  explicit operator bool() const { return thread_ != nullptr; }
  Thread& thread() { return *thread_; }
  // Sets when the recorded call began. The record's time is then the call's end.
  void SetBegin(uint64_t begin) {
    auto* const header = reinterpret_cast<RecordHeader*>(thread_->at);
    header->took = static_cast<float>(static_cast<int64_t>(header->time - begin));
  }
  void MayCountPolls() { is_polls_ = true; }

  template <class T>
  void Put(const T& value) {
    memcpy(at_, &value, sizeof value);
    at_ += sizeof value;
  }
  void PutBytes(const void* bytes, size_t count) {
    memcpy(at_, bytes, count);
    at_ += count;
  }
  // Returns whether a list may have another element.
  bool HasRoom() const { return limit_ - at_ > static_cast<ptrdiff_t>(kListReserveBytes); }
  char* at() { return at_; }

 private:
  void Begin(RecordKind kind, uint16_t what, uint64_t time) {
    if (thread_ == nullptr) return;
    at_ = thread_->at + sizeof(RecordHeader);
    limit_ = thread_->at + kMaxRecordBytes;
    auto* const header = reinterpret_cast<RecordHeader*>(thread_->at);
    header->what = what & 0xfff;
    header->kind = static_cast<uint8_t>(kind) & 0xf;
    header->took = 0;
    header->time = time;
  }

  Thread* thread_;
  char* at_ = nullptr;
  char* limit_ = nullptr;
  bool is_polls_ = false;
};

}  // namespace rdmaemu::layer::trace
