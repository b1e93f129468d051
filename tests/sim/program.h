// A program of a run: a process with its memory, its device, regions and completion queues, and a
// model of the possible values of each byte of its memory.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/sim/checkers/atomic_checker.h"
#include "tests/sim/checkers/event_checker.h"
#include "tests/sim/checkers/memory_model.h"
#include "tests/sim/heap.h"
#include "tests/sim/process.h"

namespace rdmaemu::sim {

// A program's view of a region: its keys, and the difference between the keys' addresses and its
// own.
struct Region {
  ibv_mr* mr = nullptr;
  int access = 0;
  uint64_t begin = 0, end = 0;  // offsets in the memory
  uint64_t iova = 0;            // of `begin`
  uint64_t Iova(uint64_t offset) const { return iova + (offset - begin); }
};

struct CompletionQueueOf {
  ibv_cq* cq = nullptr;
  uint32_t number = 0;
  uint32_t entries = 0;                       // entries promised to queue pairs are at most as many
  uint32_t promised = 0;                      // entries
  std::optional<EventChecker::Queue> events;  // set when it has the program's channel
};

class Program {
 public:
  // The layout of a program's memory: constant bytes, words for atomics, the heap.
  static constexpr uint64_t kConstantBytes = 72 * 1024;
  static constexpr uint64_t kWords = 64;
  static constexpr uint64_t kWordsAt = kConstantBytes;
  static constexpr uint64_t kHeapAt = kWordsAt + kWords * 8;
  static constexpr uint64_t kMemoryBytes = 512 * 1024;
  static constexpr uint64_t kHugeMemoryBytes = 8 * kHugeBytes;  // of runs with huge messages
  static constexpr uint32_t kCqEntries = 255;

  Program(World& world, Machine& machine, uint32_t number, AtomicChecker& atomics,
          EventChecker& events);

  const std::string& name() const { return name_; }
  uint32_t number() const { return number_; }
  Machine& machine() { return process_->machine(); }
  Process& process() { return *process_; }
  bool Runs() const { return process_->Runs(); }
  bool Lives() const { return process_->Lives(); }
  MemoryModel& model() { return *model_; }
  Heap& heap() { return heap_; }
  std::span<const std::byte> bytes() const { return memory_; }
  // The region over all of the memory, with all rights.
  const Region& region() const { return region_; }
  ibv_pd* pd() const { return pd_; }
  uint64_t base() const { return base_; }

  // The same memory with fewer rights: no peer may write it.
  const Region& read_only() const { return read_only_; }
  // Words for atomics. Requests add to the even ones and swap the odd ones.
  AtomicChecker::Word word(uint64_t index) const {
    return first_word_ + static_cast<uint32_t>(index);
  }
  uint64_t WordValue(uint64_t index) const;
  // Returns an address handle for a machine. The first call creates it.
  ibv_ah* AddressHandleTo(const Machine& machine, bool ipv6);

  // Returns a completion queue with room for `entries` more. Creates one when all are full.
  CompletionQueueOf& QueueWithRoom(uint32_t entries);
  std::vector<std::unique_ptr<CompletionQueueOf>>& queues() { return queues_; }
  // The completions that wait to be polled.
  void ForEachQueued(const std::function<void(const CqEntry&)>& action);
  bool HasQueued();
  // Resizes one of its queues. The new size may be too small for the queued completions.
  void ResizeQueue();
  // Allocate and free a memory window. On failure they complain; AllocWindow returns nullptr.
  ibv_mw* AllocWindow(ibv_mw_type type);
  bool FreeWindow(ibv_mw* window);
  // Destroys all objects in order, after its queue pairs and shared queues. Each call must succeed.
  void DestroyAll();

  // Requests an event of a queue that has the channel.
  void Arm();
  // The number of polls of all queues.
  uint64_t harvests() const { return harvests_; }
  void CountHarvest() { harvests_++; }
  // Takes the channel's events and returns their queues.
  std::vector<CompletionQueueOf*> TakeEvents();
  // Returns the host's errno (EINVAL, for example). On 0 it fills `out`.
  int Register(uint64_t begin, uint64_t end, int access, Region& out);
  // Reregister moves the region to other bytes. Deregister ends it.
  int Reregister(Region& region, uint64_t begin, uint64_t end);
  int Deregister(Region& region);
  // DestroyAll deregisters the region.
  void EndWithTheRest(const Region& region) { left_over_.push_back(region); }
  // The addresses of its bytes: the process's artificial address, and the real address.
  uint64_t AddressOf(uint64_t offset) const { return base_ + offset; }
  std::byte* Real(uint64_t offset) { return memory_.data() + offset; }

  uint64_t NextWrId(bool receive) { return ++last_wr_id_ << 1 | (receive ? 1 : 0); }
  static bool IsReceive(uint64_t wr_id) { return (wr_id & 1) != 0; }

  // Returns bytes that never change, so that a gather or READ of them has one correct result.
  // `length` must not exceed LongestConstant().
  Piece Constant(uint32_t length);
  uint32_t LongestConstant() const { return huge_ ? huge_->length : uint32_t{kConstantBytes}; }
  // Returns a piece with fresh bytes; nullopt when the heap is full.
  std::optional<Piece> TakeFilled(uint32_t length);
  std::vector<std::byte> Fresh(uint32_t length);

 private:
  World& world_;
  EventChecker& events_;
  uint32_t number_;
  std::string name_;
  uint64_t base_;
  std::vector<std::byte> memory_;
  std::unique_ptr<MemoryModel> model_;
  Heap heap_;
  std::unique_ptr<Process> process_;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  Region region_, read_only_;
  AtomicChecker::Word first_word_ = 0;
  std::optional<Piece> huge_;  // constant bytes of runs with huge messages
  std::map<std::pair<std::string, bool>, ibv_ah*> address_handles_;
  std::vector<std::unique_ptr<CompletionQueueOf>> queues_;
  std::vector<ibv_mw*> windows_;
  std::vector<Region> left_over_;
  uint64_t last_wr_id_ = 0;
  uint64_t harvests_ = 0;
};

}  // namespace rdmaemu::sim
