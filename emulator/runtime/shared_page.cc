#include "emulator/runtime/shared_page.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>

#include "emulator/runtime/byte_lock.h"
#include "emulator/runtime/clock.h"

namespace rdmaemu::runtime {
namespace {

constexpr uint64_t kMaxTurn = uint64_t{1} << 62;
constexpr uint64_t kNoTurn = UINT64_MAX;

using Marks = std::array<uint64_t, PageTurn::kAreas>;  // the activated turn of each area

off_t AreaOf(uint64_t turn) { return static_cast<off_t>(turn % PageTurn::kAreas); }
off_t PlaceOf(uint64_t turn) {
  return PageTurn::kAreasAt + AreaOf(turn) * static_cast<off_t>(PageTurn::kMaxAreaBytes);
}

Locked LockArea(int fd, uint64_t turn) {
  return SetLock(fd, F_WRLCK, PageTurn::kLocksAt + AreaOf(turn));
}
void UnlockArea(int fd, uint64_t turn) { SetLock(fd, F_UNLCK, PageTurn::kLocksAt + AreaOf(turn)); }

// Marks of a damaged file count as 0. Returns nullopt if the file cannot be read.
std::optional<Marks> ReadMarks(int fd) {
  Marks marks{};
  // The own writes come before this read in the order in which other processes see them.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (pread(fd, marks.data(), sizeof marks, 0) < 0) return std::nullopt;
  for (size_t i = 0; i < marks.size(); i++) {
    if (marks[i] % PageTurn::kAreas != i || marks[i] > kMaxTurn) marks[i] = 0;
  }
  return marks;
}

std::optional<uint64_t> LatestTurn(int fd) {
  const std::optional<Marks> marks = ReadMarks(fd);
  if (!marks) return std::nullopt;
  return *std::ranges::max_element(*marks);
}

// Waits for the holder of a lock to continue. A holder on this processor runs during the first
// yields. sched_yield(2) does not give the processor to a process of another session
// (abi/host_turn.h), so the next waits are sleeps. No event ends them: see byte_lock.h.
constexpr int kYields = 50;
constexpr timespec kNap{0, 200'000};

void AwaitHolder(int looks) {
  if (looks < kYields) {
    sched_yield();
    return;
  }
  // Program time replaces nanosleep(2) and poll(2). It does not replace this call.
  syscall(SYS_ppoll, nullptr, 0, &kNap, nullptr, 0);
}

// Writes all bytes or returns false. A write beyond RLIMIT_FSIZE would raise SIGXFSZ in a program
// that does not expect it.
bool WriteAt(int fd, off_t place, const void* bytes, size_t count) {
  rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      limit.rlim_cur < static_cast<rlim_t>(place) + count) {
    errno = EFBIG;
    return false;
  }
  return pwrite(fd, bytes, count, place) == static_cast<ssize_t>(count);
}

bool Activate(int fd, uint64_t turn) {
  return WriteAt(fd, AreaOf(turn) * static_cast<off_t>(sizeof turn), &turn, sizeof turn);
}

}  // namespace

bool PageTurn::Hold(uint64_t turn) {
  is_held_ = true;
  turn_ = turn;
  if (IsLatest()) return true;
  Release();
  return false;
}

bool PageTurn::IsLatest() const { return LatestTurn(fd_) == turn_; }

bool PageTurn::Take() {
  Release();
  uint64_t waits_for = kNoTurn;
  Time since;
  int looks = 0;
  for (;;) {
    const std::optional<uint64_t> latest = LatestTurn(fd_);
    if (!latest) return false;
    switch (LockArea(fd_, *latest)) {
      case Locked::kFailed:
        return false;
      case Locked::kYes:
        if (Hold(*latest)) return true;
        continue;
      case Locked::kNo:
        break;
    }
    if (waits_for != *latest) {
      waits_for = *latest;
      since = RealNow();
      looks = 0;
    } else if (RealNow() - since >= kTakeOverAfter) {
      if (TakeOver(*latest)) return true;
      waits_for = kNoTurn;
    }
    AwaitHolder(looks++);
  }
}

bool PageTurn::TakeOver(uint64_t from) {
  for (uint64_t turn = from + 1; turn < from + kAreas; turn++) {
    if (LockArea(fd_, turn) != Locked::kYes) continue;
    // If another process took over first, this area may be in use already.
    if (LatestTurn(fd_) == from && Activate(fd_, turn)) return Hold(turn);
    UnlockArea(fd_, turn);
    return false;
  }
  return false;
}

void PageTurn::Release() {
  if (is_held_) UnlockArea(fd_, turn_);
  is_held_ = false;
}

bool PageTurn::Read(void* area, size_t bytes) const {
  std::optional<Marks> marks = ReadMarks(fd_);
  if (!marks) return false;
  std::ranges::sort(*marks, std::ranges::greater());
  for (const uint64_t turn : *marks) {
    if (pread(fd_, area, bytes, PlaceOf(turn)) != static_cast<ssize_t>(bytes)) continue;
    uint64_t stored;
    std::memcpy(&stored, area, sizeof stored);
    if (stored == turn) return true;
  }
  return false;
}

bool PageTurn::Write(const void* area, size_t bytes) const {
  return WriteAt(fd_, PlaceOf(turn_), area, bytes);
}

}  // namespace rdmaemu::runtime
