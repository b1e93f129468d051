// The program's side of the pages by which calls reach the host without a system call
// (emulator/abi/call_page.h).
#pragma once

#include <atomic>
#include <cstdint>

#include "emulator/abi/call_page.h"

namespace rdmaemu::client {

// The buffer for a reply: `size` bytes at `bytes`, of which `filled` are valid.
struct Buffer {
  void* bytes;
  uint32_t size;
  uint32_t filled;
};

struct PageCaller {
  bool (*wake_host)();  // false if the host is unreachable
  bool (*host_has_ended)();
  const std::atomic<bool>& gone;
};

// Returns true for calls without descriptors whose sizes fit a page.
inline bool FitsPage(uint32_t in_size, uint32_t out_size, uint32_t descriptor_count) {
  return descriptor_count == 0 && in_size <= CallPage::kMaxInBytes &&
         out_size <= CallPage::kMaxOutBytes;
}

// The pages of this process. All functions are thread-safe, but for Init and Map.
class CallPages {
 public:
  // Call this before anything else, and in a forked child, whose parent keeps its pages.
  void Init();
  // Maps the pages behind a memfd that the host sent, if that works.
  void Map(int fd);
  bool are_mapped() const { return set_.load() != nullptr; }
  // Makes one call with header.size bytes at `in`, which must fit. Waits for a page if other
  // threads use all of them. `is_nested`: the thread is in a signal handler that has interrupted a
  // call. Returns the reply's errno, or EIO if the host has ended.
  int Call(CallHeader header, const void* in, Buffer& out, const PageCaller& caller,
           bool is_nested);
  // Wakes up the threads that wait for replies, so that they check whether the host has ended.
  void WakeCallers();

 private:
  // Half of the pages. Signal handlers use it, so it has no lock that the interrupted thread may
  // hold.
  struct Half {
    uint32_t free;     // bit N: page N of the half is free; a futex
    uint32_t waiting;  // threads that wait for a page
  };

  static uint32_t TakeFrom(Half& half);
  static void GiveBack(Half& half, uint32_t number);

  std::atomic<CallPageSet*> set_{nullptr};
  Half halves_[2];
};

}  // namespace rdmaemu::client
