// Calls without a system call: a page that one process and its host share holds one call and its
// reply. The caller writes the call, the host, while it is awake, finds it by looking. What needs
// more room, or descriptors, goes through the socket; so does the first call, which asks for the
// page. One call at a time; the process's own lock keeps its threads in line.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "emulator/abi/calls.h"

namespace rdmaemu {

struct CallPage {
  static constexpr size_t kMaxInBytes = 3072;
  static constexpr size_t kMaxOutBytes = 4096;
  static constexpr uint32_t kIdle = 0, kAsked = 1, kAnswered = 2, kTaken = 3;

  // kIdle to kAsked by the process, to kAnswered by the host, to kIdle by the process. A futex. A
  // call that is answered later is kTaken meanwhile: it is not asked twice.
  alignas(64) uint32_t state;
  uint32_t caller_sleeps;  // the host wakes who waits for `state`
  // 0: the host does not look here by itself; who asks writes the doorbell eventfd then.
  alignas(64) uint32_t host_looks;
  alignas(64) CallHeader call;
  ReplyHeader reply;
  alignas(8) std::byte in[kMaxInBytes];
  alignas(8) std::byte out[kMaxOutBytes];

  // By the process, once `call` and `in` are written. True: the host must be told.
  bool Ask() {
    std::atomic_ref(state).store(kAsked, std::memory_order_seq_cst);
    return std::atomic_ref(host_looks).load(std::memory_order_seq_cst) == 0;
  }
  uint32_t State() { return std::atomic_ref(state).load(std::memory_order_seq_cst); }
  // By the host; the caller sleeps on.
  void MarkTaken() { std::atomic_ref(state).store(kTaken, std::memory_order_seq_cst); }
  // By the host, once `reply` and `out` are written. True: the caller must be woken.
  bool MarkAnswered() {
    std::atomic_ref(state).store(kAnswered, std::memory_order_seq_cst);
    return std::atomic_ref(caller_sleeps).load(std::memory_order_seq_cst) != 0;
  }
};

}  // namespace rdmaemu
