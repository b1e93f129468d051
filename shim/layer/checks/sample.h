// Samples of the memory that a posted send reads. They detect a change before the send's
// completion.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace rdmaemu::layer::checks {

// The bytes of a send's buffers at the time of the post: all bytes of a short message, and words
// spread over a long one. The memory is read by process_vm_readv(2), so unmapped memory causes no
// crash.
class Sample {
 public:
  static constexpr int kMaxRanges = 3;
  static constexpr size_t kWordBytes = 8, kWords = 16;

  // Returns nullptr when the memory cannot be read, or there are no bytes.
  static Sample* Take(const ibv_sge* sges, int count);
  // Returns the address of a byte that has changed since, or 0.
  uint64_t Changed() const;

  const void* place = nullptr;  // of the call that posted the send

 private:
  struct Piece {
    uint64_t address;
    uint32_t length;
  };
  void Choose(const ibv_sge* sges, int count);
  bool Read(uint8_t* out) const;

  Piece pieces_[kWords + kMaxRanges];
  int count_ = 0;
  size_t length_ = 0;
  uint8_t bytes_[(kWords + kMaxRanges) * kWordBytes];
};

}  // namespace rdmaemu::layer::checks
