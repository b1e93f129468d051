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

  // Makes the queue pair of an id that has a device, and posts the receives, of `receive_bytes`
  // each. Memory for sends and RDMA follows: `extra_bytes`, which the peer may write.
  Endpoint(Id id, size_t receive_bytes, size_t extra_bytes);
  ~Endpoint();

  rdma_cm_id* id() const { return id_.get(); }
  // Readable when completions may have come.
  int descriptor() const { return channel_->fd; }
  uint32_t key() const { return memory_->rkey; }
  char* extra() { return buffer_.data() + kReceives * receive_bytes_; }
  const char* received(uint64_t slot) const { return buffer_.data() + slot * receive_bytes_; }

  void PostReceive(uint64_t slot);
  // From extra memory.
  void PostSend(const void* from, size_t bytes);
  void PostWrite(const void* from, size_t bytes, uint64_t address, uint32_t rkey);

  // Takes a completion; false when there is none now. Then, and after TakeNotice, Arm and poll
  // once more before sleeping.
  bool Poll(ibv_wc& completion);
  void Arm();
  // Waits until completions may have come (unless the descriptor is O_NONBLOCK).
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
};

}  // namespace kv
