// Appends records to the window of the calling thread.
#pragma once

#include <time.h>

#include <cstring>

#include "shim/layer/trace/record.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace rdmaemu::layer::trace {

// One thread's place in its window. `rdmaemu_layer_begin_record` has it ready for a record.
struct Thread {
  uint64_t generation;  // of the process when the window was made: a forked child has another
  char *begin, *at, *end;
  EmptyPollsRecord* polls;  // the last record, when it may count one more empty poll
  uint64_t position;        // bytes in the log
  uint32_t number;
  uint32_t calls;
  uint32_t attempt_in;  // records to lose before the next attempt to make a window
  Loss why_not;         // of the last attempt
  bool is_writing;
};

}  // namespace rdmaemu::layer::trace

// The runtime is in the layer's libibverbs.so.1, also for its librdmacm.so.1.
extern "C" {
#define RDMAEMU_LAYER_SHARED extern __attribute__((visibility("default")))
// The calling thread with room for one record, and is_writing set; nullptr when the record is lost.
RDMAEMU_LAYER_SHARED rdmaemu::layer::trace::Thread* rdmaemu_layer_begin_record();
// Whether a return address is the program's: not in the layer or the libraries behind it.
RDMAEMU_LAYER_SHARED bool rdmaemu_layer_is_program(const void* address);
// Adds the code of a library that is not the program's.
RDMAEMU_LAYER_SHARED void rdmaemu_layer_add_library(const void* address);
RDMAEMU_LAYER_SHARED bool rdmaemu_layer_is_tracing();
RDMAEMU_LAYER_SHARED uint64_t rdmaemu_layer_time();
}

namespace rdmaemu::layer::trace {

// Opens the recording that RDMAEMU_LAYER_TRACE names, if any. `is_emulator`: of what is behind.
void OpenRecording(bool is_emulator);

// The clock of the recording.
inline uint64_t Now() { return rdmaemu_layer_time(); }

// A record under construction; committed by its destructor. Invalid when it is lost.
class Record {
 public:
  Record(RecordKind kind, uint16_t what, uint64_t time)
      : Record(rdmaemu_layer_begin_record(), kind, what, time) {}
  // For a thread that rdmaemu_layer_begin_record gave.
  Record(Thread* thread, RecordKind kind, uint16_t what, uint64_t time) : thread_(thread) {
    if (thread_ == nullptr) return;
    at_ = thread_->at + sizeof(RecordHeader);
    limit_ = thread_->at + kMaxRecordBytes;
    auto* const header = reinterpret_cast<RecordHeader*>(thread_->at);
    header->what = what & 0xfff;
    header->kind = static_cast<uint8_t>(kind) & 0xf;
    header->took = 0;
    header->time = time;
  }
  ~Record() {
    if (thread_ == nullptr) return;
    auto* const header = reinterpret_cast<RecordHeader*>(thread_->at);
    const auto bytes = static_cast<uint16_t>((at_ - thread_->at + 7) & ~7);
    thread_->at += bytes;
    // What is behind is from before the window was emptied.
    reinterpret_cast<RecordHeader*>(thread_->at)->bytes = 0;
    thread_->polls = is_polls_ ? reinterpret_cast<EmptyPollsRecord*>(header) : nullptr;
    __atomic_store_n(&header->bytes, bytes, __ATOMIC_RELEASE);
    __atomic_store_n(&thread_->is_writing, false, __ATOMIC_RELEASE);
  }
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;

  explicit operator bool() const { return thread_ != nullptr; }
  Thread& thread() { return *thread_; }
  // When what it tells began, of a record whose time is the end.
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
  // Whether a list may have another element.
  bool HasRoom() const { return limit_ - at_ > static_cast<ptrdiff_t>(kListReserveBytes); }
  char* at() { return at_; }

 private:
  Thread* thread_;
  char* at_ = nullptr;
  char* limit_ = nullptr;
  bool is_polls_ = false;
};

}  // namespace rdmaemu::layer::trace
