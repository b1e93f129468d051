// Adds to eventfds that others hold as well, and never waits. write(2) blocks on a full eventfd
// unless the descriptor is O_NONBLOCK, a flag that its holders share and can clear, and a look with
// poll(2) before it leaves them time to fill it. A completed asynchronous read that names an
// eventfd (io_submit(2), IOCB_FLAG_RESFD) adds one from inside the kernel, where a full counter
// stays full and nobody waits.
#pragma once

#include <cstdint>

#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::runtime {

class EventfdSignal {
 public:
  static constexpr uint32_t kMaxBatch = 32;

  // One for all that need one: giving a context of io_submit back takes tens of milliseconds.
  static EventfdSignal& OfProcess();

  EventfdSignal();
  ~EventfdSignal();
  EventfdSignal(const EventfdSignal&) = delete;
  EventfdSignal& operator=(const EventfdSignal&) = delete;

  // False where the system has no io_submit (a sandbox may refuse it): Add then looks before it
  // writes, and a client that fills its counter in between can hold the caller up.
  bool never_waits() const { return context_ != 0; }
  void Add(int eventfd, uint32_t count);

 private:
  uint64_t context_ = 0;  // aio_context_t
  UniqueFd nothing_;      // what is read: /dev/null, at once and always
};

}  // namespace rdmaemu::runtime
