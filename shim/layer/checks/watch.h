// Watches of the memory of posted receives by breakpoints of the processor (perf_event_open(2)), to
// find the program's accesses before the completion.
//
// A watch covers up to eight bytes, and the accesses of the thread that posted the receive. It
// keeps no descriptor. Use Begin and End only within a Section.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>

namespace rdmaemu::layer::checks {

class Watch {
 public:
  // A processor has four breakpoints for each thread; a debugger wants some of them.
  static constexpr int kMaxWatches = 2;

  // Watches the first bytes of the buffers after `skipped` bytes. Returns nullptr when all watches
  // are in use, when there are no such bytes, or when the system has no breakpoints.
  static Watch* Begin(const ibv_sge* sges, int count, uint32_t skipped);
  // Returns the code of the program's first access, or nullptr.
  const void* End();

  uint64_t address() const { return address_; }
  const void* place = nullptr;  // of the call that posted the receive

  // Whether a thread has watches. LibraryAccesses then has work.
  static bool Exist() { return exist_.load(std::memory_order_relaxed); }

 private:
  friend class LibraryAccesses;
  enum class State : int { kFree, kWatching, kEnded };

  bool Open(uint64_t address, uint32_t length);
  void Close();
  bool IsOfThisThread() const;
  uint64_t Accesses() const;  // bytes in the ring since the beginning
  void Collect(uint64_t until);
  void Read(uint64_t at, void* out, size_t size) const;

  static inline std::atomic<bool> exist_;
  static Watch all_[kMaxWatches];

  std::atomic<State> state_ = State::kFree;
  uint32_t generation_ = 0;
  int thread_ = 0;
  void* ring_ = nullptr;
  uint64_t address_ = 0;
  uint64_t read_to_ = 0;  // bytes of the ring
  const void* first_ = nullptr;
};

// While it exists, accesses of the thread are those of the libraries.
class LibraryAccesses {
 public:
  LibraryAccesses() {
    if (Watch::Exist()) Begin();
  }
  ~LibraryAccesses() {
    if (Watch::Exist()) End();
  }
  LibraryAccesses(const LibraryAccesses&) = delete;
  LibraryAccesses& operator=(const LibraryAccesses&) = delete;

 private:
  void Begin();
  void End();
  // The ends of the rings before the libraries' accesses. 0: not a watch of this thread.
  uint64_t before_[Watch::kMaxWatches] = {};
};

// Returns why this process has no breakpoints: an errno, kBreakpointsIgnored, or 0.
int WatchError();

}  // namespace rdmaemu::layer::checks
