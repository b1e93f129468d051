// One end of a connection: an id with its queue pair, completion queue and registered memory.
#pragma once

#include <cstdint>
#include <vector>

#include "rdma.h"

namespace kv {

class Endpoint {
 public:
  static constexpr uint32_t kReceives = 8;
  static constexpr uint32_t kSends = 16;

  // Creates the queue pair of an id that has a device, and posts kReceives receives of
  // `receive_bytes` each. `extra_bytes` of memory for sends and RDMA follow. The peer may write
  // this extra memory.
  Endpoint(Id id, size_t receive_bytes, size_t extra_bytes);
  ~Endpoint();

  rdma_cm_id* id() const { return id_.get(); }
  // The descriptor becomes readable when completions may be available.
  int descriptor() const { return channel_->fd; }
  uint32_t key() const { return memory_->rkey; }
  char* extra() { return buffer_.data() + kReceives * receive_bytes_; }
  const char* received(uint64_t slot) const { return buffer_.data() + slot * receive_bytes_; }

  void PostReceive(uint64_t slot);
  // `from` is in the extra memory.
  void PostSend(const void* from, size_t bytes);
  void PostWrite(const void* from, size_t bytes, uint64_t address, uint32_t rkey);

  // Takes a completion; returns false when the queue is empty. The caller then calls Arm and polls
  // once more before it sleeps, and does the same after TakeNotice.
  bool Poll(ibv_wc& completion);
  void Arm();
  // Waits until completions may be available, unless the descriptor is O_NONBLOCK.
  void TakeNotice();
  void Disconnect() { rdma_disconnect(id_.get()); }

 private:
  void Post(ibv_send_wr& work, const void* from, size_t bytes);

  Id id_;
  size_t receive_bytes_;
  std::vector<char> buffer_;
  CompletionChannel channel_;
  CompletionQueue queue_;
  Memory memory_;
  QueuePair queue_pair_;  // uses all of the above
};

}  // namespace kv
