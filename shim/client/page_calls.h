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

// Maps the pages behind a memfd that the host sent. Returns nullptr on failure.
CallPageSet* MapCallPages(int fd);

// Returns true for calls without descriptors whose sizes fit a page.
inline bool FitsPage(uint32_t in_size, uint32_t out_size, uint32_t descriptor_count) {
  return descriptor_count == 0 && in_size <= CallPage::kMaxInBytes &&
         out_size <= CallPage::kMaxOutBytes;
}

// Makes one call with header.size bytes at `in`, which must fit. Returns the reply's errno, or EIO
// if the host has ended.
int ExchangeByPage(CallPage& page, CallHeader header, const void* in, Buffer& out,
                   const PageCaller& caller);

// Wakes up a thread that waits for a reply, so that it checks whether the host has ended.
void WakeCaller(CallPage& page);

}  // namespace rdmaemu::client
