// Watches the memory of posted receives by breakpoints of the processor (perf_event_open(2)). A
// watch finds the program's accesses before the completion.
//
// A watch covers up to eight bytes, and the accesses of the thread that posted the receive. A watch
// holds no descriptor open. Use Begin and End only within a Section.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>

namespace rdmaemu::layer::checks {

class Watch {
 public:
  // A processor has four breakpoints for each thread. A debugger needs some of them.
  static constexpr int kMaxWatches = 2;

  // Watches the first bytes of the buffers behind `skipped` bytes. Returns nullptr when all watches
  // are in use, when there are no such bytes, or when the system has no breakpoints.
  static Watch* Begin(const ibv_sge* sges, int count, uint32_t skipped);
  // Returns the address of the code of the program's first access, or nullptr.
  const void* End();

  uint64_t address() const { return address_; }
  const void* place = nullptr;  // of the call that posted the receive

  // Returns whether any thread has watches. Without watches, LibraryAccesses does nothing.
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

// While a LibraryAccesses exists, accesses of the thread count as the libraries'.
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
  // The ends of the rings before the libraries' accesses. 0: the watch is not one of this thread.
  uint64_t before_[Watch::kMaxWatches] = {};
};

// Returns the reason why this process has no breakpoints: an errno, kBreakpointsIgnored, or 0.
int WatchError();

}  // namespace rdmaemu::layer::checks
