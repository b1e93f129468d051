// The program's side of the page by which calls reach the host without a system call
// (emulator/abi/call_page.h).
#pragma once

#include <atomic>
#include <cstdint>

#include "emulator/abi/call_page.h"

namespace rdmaemu::client {

// Where a reply goes: `size` bytes at `bytes`, of which `filled` came.
struct Buffer {
  void* bytes;
  uint32_t size;
  uint32_t filled;
};

struct PageCaller {
  bool (*wake_host)();  // false when the host cannot be reached any more
  bool (*host_has_ended)();
  const std::atomic<bool>& gone;
};

// The page behind a memfd that the host sent; nullptr when it cannot be mapped.
CallPage* MapCallPage(int fd);

// Calls without descriptors, of a size that fits.
inline bool FitsPage(uint32_t in_size, uint32_t out_size, uint32_t descriptor_count) {
  return descriptor_count == 0 && in_size <= CallPage::kMaxInBytes &&
         out_size <= CallPage::kMaxOutBytes;
}

// Makes one call of header.size bytes at `in`, which must fit. The reply's errno, or EIO when the
// host has gone.
int ExchangeByPage(CallPage& page, CallHeader header, const void* in, Buffer& out,
                   const PageCaller& caller);

// Who waits for an answer looks whether the host has gone.
void WakeCaller(CallPage& page);

}  // namespace rdmaemu::client
