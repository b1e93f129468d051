#include "emulator/runtime/eventfd_signal.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>

namespace rdmaemu::runtime {
namespace {

// The head of the completion ring to which the context's number points (fs/aio.c). libaio reads
// completions from it in the same way.
struct CompletionRing {
  uint32_t id, slots;
  uint32_t head, tail;
  uint32_t magic;
};
constexpr uint32_t kRingMagic = 0xa10a10a1;

// Discards completions, which nobody needs, so that the ring does not fill up.
bool DropCompletions(aio_context_t context) {
  auto& ring = *reinterpret_cast<CompletionRing*>(context);
  if (ring.magic != kRingMagic) return false;
  std::atomic_ref(ring.head).store(std::atomic_ref(ring.tail).load());
  return true;
}

void WriteIfRoom(int eventfd, uint64_t count) {
  pollfd writable{eventfd, POLLOUT, 0};
  if (poll(&writable, 1, 0) != 1 || (writable.revents & POLLOUT) == 0) return;
  [[maybe_unused]] const ssize_t written = write(eventfd, &count, sizeof count);
}

}  // namespace

EventfdSignal& EventfdSignal::OfProcess() {
  static auto* const signal = new EventfdSignal;
  return *signal;
}

EventfdSignal::EventfdSignal() : nothing_(open("/dev/null", O_RDONLY | O_CLOEXEC)) {
  aio_context_t context = 0;
  if (!nothing_ || syscall(SYS_io_setup, kMaxBatch, &context) != 0) return;
  if (DropCompletions(context)) {
    context_ = context;
  } else {
    syscall(SYS_io_destroy, context);
  }
}

EventfdSignal::~EventfdSignal() {
  if (context_ != 0) syscall(SYS_io_destroy, context_);
}

void EventfdSignal::Add(int eventfd, uint32_t count) {
  if (context_ == 0) return WriteIfRoom(eventfd, count);
  iocb read{};
  read.aio_lio_opcode = IOCB_CMD_PREAD;
  read.aio_fildes = static_cast<uint32_t>(nothing_.get());
  read.aio_flags = IOCB_FLAG_RESFD;
  read.aio_resfd = static_cast<uint32_t>(eventfd);
  // All entries are the same request, because the kernel stores no state in it.
  std::array<iocb*, kMaxBatch> batch;
  batch.fill(&read);
  while (count > 0) {
    const long submitted =
        syscall(SYS_io_submit, context_, long{std::min(count, kMaxBatch)}, batch.data());
    DropCompletions(context_);
    if (submitted <= 0) return WriteIfRoom(eventfd, count);
    count -= static_cast<uint32_t>(submitted);
  }
}

}  // namespace rdmaemu::runtime
