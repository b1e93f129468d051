// Calls without a system call. One process and its host share pages, each of which holds one call
// and its reply. The caller writes the call. An awake host polls the pages and finds the call. The
// socket carries three kinds of calls: the first call, which requests the pages, calls that need
// more room, and calls with file descriptors. A page holds one call at a time, so a thread takes a
// free page before it calls.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "emulator/abi/calls.h"

namespace rdmaemu {

struct CallPage {
  static constexpr size_t kMaxInBytes = 3072;
  static constexpr size_t kMaxOutBytes = 4096;
  static constexpr uint32_t kIdle = 0, kAsked = 1, kAnswered = 2, kTaken = 3;
  static constexpr uint32_t kAwake = 0, kYieldsHere = 1, kSleeps = 2;

  // `state` is a futex. The process sets kAsked, the host sets kAnswered, and the process sets
  // kIdle again. The host sets kTaken while it delays a reply, so that it does not execute the call
  // twice.
  alignas(64) uint32_t state;
  // kSleeps: a thread sleeps on `state`, and the host must wake it. kYieldsHere: a thread yields on
  // the processor on which it last saw the host.
  uint32_t caller_waits;
  // 0: the host does not poll this page. The caller then writes the doorbell eventfd.
  alignas(64) uint32_t host_looks;
  alignas(64) CallHeader call;
  ReplyHeader reply;
  alignas(8) std::byte in[kMaxInBytes];
  alignas(8) std::byte out[kMaxOutBytes];

  // The process calls this after it wrote `call` and `in`. Returns true when the process must wake
  // up the host.
  bool Ask() {
    std::atomic_ref(state).store(kAsked, std::memory_order_seq_cst);
    return std::atomic_ref(host_looks).load(std::memory_order_seq_cst) == 0;
  }
  uint32_t State() { return std::atomic_ref(state).load(std::memory_order_seq_cst); }
  // The host calls this when it delays the reply. The caller stays asleep.
  void MarkTaken() { std::atomic_ref(state).store(kTaken, std::memory_order_seq_cst); }
  // The host calls this after it wrote `reply` and `out`. Returns caller_waits.
  uint32_t MarkAnswered() {
    std::atomic_ref(state).store(kAnswered, std::memory_order_seq_cst);
    return std::atomic_ref(caller_waits).load(std::memory_order_seq_cst);
  }
};

// The pages of a process. Threads that call at the same time use different pages. The second half
// is for calls of signal handlers that have interrupted a call: their threads keep a page of the
// first half meanwhile.
struct CallPageSet {
  static constexpr uint32_t kAtOnce = 8;
  static constexpr uint32_t kPages = 2 * kAtOnce;

  // No page with this number or a higher one has had a call. Such pages take no memory as long as
  // nobody reads them.
  alignas(64) uint32_t used;
  CallPage pages[kPages];

  // The process calls this before it uses the page.
  void NoteUse(uint32_t page) {
    std::atomic_ref most(used);
    uint32_t now = most.load(std::memory_order_relaxed);
    while (now <= page && !most.compare_exchange_weak(now, page + 1, std::memory_order_seq_cst)) {
    }
  }
  std::span<CallPage> UsedPages() {
    const uint32_t count = std::atomic_ref(used).load(std::memory_order_seq_cst);
    return std::span(pages).first(std::min(count, kPages));
  }
};

}  // namespace rdmaemu
