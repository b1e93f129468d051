// Asks the decision server (`rdmaemu run --backend system`) for its decision at a watched door.
// Each moment has its own connection. Forks, closefrom(3) and ended threads therefore cannot share
// or lose a connection. All functions preserve errno and are thread-safe.
#pragma once

#include "shim/layer/faults/protocol.h"
#include "shim/layer/injected.h"

namespace rdmaemu::layer::faults {

// nullptr: no door is watched now, and none will be.
extern const DoorsPage* g_doors;

// Maps the page of watched doors. On failure ends the process with status 127.
void OpenDoors();

inline bool IsWatched(CallNumber call) {
  return g_doors != nullptr && g_doors->calls[call].load(std::memory_order_relaxed) != 0;
}
inline bool IsWatched(std::atomic<uint8_t> DoorsPage::*door) {
  return g_doors != nullptr && (g_doors->*door).load(std::memory_order_relaxed) != 0;
}

// The decision about one moment at a door. When the server cannot be reached, prints an error once,
// and decides kProceed.
class Asked {
 public:
  explicit Asked(const MomentIn& moment);
  ~Asked();
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;

  const AnswerOut& answer() const { return answer_; }
  Does does() const { return static_cast<Does>(answer_.does); }
  // Blocks until the delay or barrier has ended. Call it for kWaitBefore before the call's effect,
  // and for kWaitAfter after it.
  void Await();
  // For kWaitBefore: begins to wait and returns a socket. The socket becomes readable when the wait
  // or the server has ended. The caller must close it. Returns -1 when there is nothing to wait
  // for.
  int TakeWait();
  // Writes the rule's name into the program trace, unless the decision is kProceed.
  void Mark(Injected what, uint32_t index = 0) const {
    if (does() != Does::kProceed) rdmaemu_layer_mark_injected(answer_.rule, what, index);
  }

 private:
  bool Send(uint32_t op, const void* body, uint32_t size);
  bool Exchange(uint32_t op, const void* body, uint32_t size, void* out, uint32_t out_size);

  int socket_ = -1;
  AnswerOut answer_{};
};

}  // namespace rdmaemu::layer::faults
