// A page of a file that several processes change, one at a time. A process that is stopped within a
// change (SIGSTOP, a debugger, a frozen cgroup) does not block the others, and its late write
// changes nothing.
//
// The file has kAreas areas, and each has a lock (F_OFD_SETLK). Turns are numbered. Turn N uses the
// area N modulo kAreas, and the highest activated turn holds the page. Usually the turn does not
// change, and processes lock its area one after the other. A process that cannot lock the area for
// kTakeOverAfter takes over: it activates a higher turn whose area is free, and copies the page.
// The lock on the old area remains, so nobody uses that area before its holder continues.
//
// A change counts if no higher turn is active after the write of the page. Else the process makes
// its change again. A process that takes over first activates its turn, and reads the page
// afterwards. So it reads each write that counts (the argument of Disk Paxos, with one disk).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace rdmaemu::runtime {

// One process's turns. Not thread-safe. Threads that share an open file description must not hold
// turns at the same time, because they share its locks.
class PageTurn {
 public:
  // More than the processes that can hold an area at the same time (TimeDomain::kMaxHosts).
  static constexpr size_t kAreas = 128;
  static constexpr size_t kMaxAreaBytes = 16384;
  // A change takes some ten microseconds, or longer if its process waits for a processor. To take
  // over from such a process is harmless.
  static constexpr std::chrono::milliseconds kTakeOverAfter{10};
  // This class uses the bytes of the file below kFirstFreeByte, and the locks from kLocksAt to
  // kFirstFreeLock. The first areas are near the file's beginning, because a program may have a
  // small RLIMIT_FSIZE.
  static constexpr off_t kAreasAt = 4096;
  static constexpr off_t kFirstFreeByte = kAreasAt + off_t{kAreas} * off_t{kMaxAreaBytes};
  static constexpr off_t kLocksAt = off_t{1} << 30;
  static constexpr off_t kFirstFreeLock = kLocksAt + kAreas;
  static_assert(kAreas * sizeof(uint64_t) <= kAreasAt);

  // `fd` remains the caller's.
  explicit PageTurn(int fd) : fd_(fd) {}
  ~PageTurn() { Release(); }
  PageTurn(const PageTurn&) = delete;
  PageTurn& operator=(const PageTurn&) = delete;

  // Waits for the latest turn and holds it. Returns false if the file cannot be read or locked.
  bool Take();
  void Release();
  uint64_t number() const { return turn_; }
  // Reads the area of the latest turn whose page was stored. Its first eight bytes are that turn's
  // number. Returns false if there is none. Needs no turn, but the page may then be half-written.
  bool Read(void* area, size_t bytes) const;
  // Writes the area of the own turn, whose first eight bytes must be number().
  bool Write(const void* area, size_t bytes) const;
  // Returns true if nobody has taken over. A write before this call then counts.
  bool IsLatest() const;

 private:
  bool Hold(uint64_t turn);
  bool TakeOver(uint64_t from);

  int fd_;
  bool is_held_ = false;
  uint64_t turn_ = 0;
};

template <typename Page>
class SharedPage {
 public:
  // Reads the page without a turn. Returns false if the file holds no page.
  static bool Read(int fd, Page& page) {
    Area area;
    if (!PageTurn(fd).Read(&area, sizeof area)) return false;
    page = area.page;
    return true;
  }
  // Calls change(page, is_there), and stores the page if it returns true. Calls it again with a new
  // page if another process took over. The page may then contain the first change, or not. Calls
  // stored() once, while no other process can change the page. Returns true if the page was stored.
  template <typename Change, typename Stored>
  static bool Update(int fd, Change change, Stored stored) {
    PageTurn turn(fd);
    while (turn.Take()) {
      Area area;
      const bool is_there = turn.Read(&area, sizeof area);
      if (!change(area.page, is_there)) return false;
      area.turn = turn.number();
      if (!turn.Write(&area, sizeof area)) return false;
      if (!turn.IsLatest()) continue;
      stored();
      return true;
    }
    return false;
  }
  template <typename Change>
  static bool Update(int fd, Change change) {
    return Update(fd, std::move(change), [] {});
  }

 private:
  struct Area {
    uint64_t turn = 0;
    Page page{};
  };
  static_assert(std::is_trivially_copyable_v<Page> && sizeof(Area) <= PageTurn::kMaxAreaBytes);
};

}  // namespace rdmaemu::runtime
