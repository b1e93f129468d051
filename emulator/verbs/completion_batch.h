// Shows completions to programs together. A program's core reads the index of a queue that the
// program polls, so each store to that index costs the host a transfer of the cache line. The
// transport therefore opens a batch while it handles several trains or packets. The entries of an
// open batch are in their rings, but their programs do not see them yet.
//
// A program must not see an effect of the host before a completion that precedes the effect. Call
// Publish before such an effect: an event, a write to program memory, a packet to another host.
#pragma once

#include <cstdint>
#include <vector>

namespace rdmaemu {

struct CompletionQueue;

class CompletionBatch {
 public:
  // The most completions of one queue that wait for Publish. More would let a program wait while
  // the host has work for it.
  static constexpr uint32_t kMostUnpublished = 16;

  // Keeps the batch open during its lifetime. Scopes may be nested.
  class Scope {
   public:
    explicit Scope(CompletionBatch& batch) : batch_(batch) { batch_.scopes_++; }
    ~Scope() {
      if (--batch_.scopes_ == 0) batch_.Publish();
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    CompletionBatch& batch_;
  };

  // Shows all completions, in the order in which their queues got the first one.
  void Publish() {
    if (!queues_.empty()) PublishAll();
  }
  // Call this before the first completion of a send. The receive that caused it must be visible
  // first.
  void PublishReceives() {
    if (holds_receives_) PublishAll();
  }
  // Call this before a completion of a receive.
  void NoteReceive() { holds_receives_ = scopes_ > 0; }

 private:
  friend struct CompletionQueue;
  void PublishAll();

  uint32_t scopes_ = 0;
  bool holds_receives_ = false;
  std::vector<CompletionQueue*> queues_;  // those with unpublished entries
};

}  // namespace rdmaemu
