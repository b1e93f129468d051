// Adds to eventfds that other processes also hold, without blocking. write(2) blocks on a full
// eventfd unless the descriptor is O_NONBLOCK. Its holders share that flag and can clear it. They
// can also fill the counter between a poll(2) and the write. A completed asynchronous read that
// names an eventfd (io_submit(2), IOCB_FLAG_RESFD) adds 1 inside the kernel. There a full counter
// stays full, and nothing blocks.
#pragma once

#include <cstdint>

#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::runtime {

class EventfdSignal {
 public:
  static constexpr uint32_t kMaxBatch = 32;

  // Returns the process's only instance. Destroying a context of io_submit takes tens of
  // milliseconds.
  static EventfdSignal& OfProcess();

  EventfdSignal();
  ~EventfdSignal();
  EventfdSignal(const EventfdSignal&) = delete;
  EventfdSignal& operator=(const EventfdSignal&) = delete;

  // Returns false if the system has no io_submit (a sandbox may refuse it). Add then polls before
  // it writes. A client that fills its counter between the poll and the write can block the caller.
  bool never_waits() const { return context_ != 0; }
  // Adds `count` to the eventfd.
  void Add(int eventfd, uint32_t count);

 private:
  uint64_t context_ = 0;  // aio_context_t
  UniqueFd nothing_;      // /dev/null: a read from it completes at once
};

}  // namespace rdmaemu::runtime
