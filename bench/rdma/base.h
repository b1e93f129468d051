// Basics of the benchmark: errors, time, and memory with known page sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

namespace rdma_bench {

// Thrown when a measurement cannot be made. It ends the program, because a wrong figure is worse
// than none.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws Failure with the attempted action and errno's text.
[[noreturn]] void FailErrno(const std::string& what);
inline void Require(bool good, const std::string& what) {
  if (!good) FailErrno(what);
}

// Returns CLOCK_MONOTONIC in seconds.
double NowSeconds();

enum class Pages { kOrdinary, kHuge };

// Private anonymous memory with every page touched. kHuge requests transparent huge pages.
class Buffer {
 public:
  Buffer(size_t bytes, Pages pages);
  // Memory that somebody else frees.
  Buffer(std::byte* data, size_t bytes) : data_(data), bytes_(bytes), is_own_(false) {}
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  // Returns how many bytes the kernel backs with huge pages now.
  size_t HugeBytes() const;

 private:
  std::byte* data_;
  size_t bytes_;
  bool is_own_ = true;
};

// Returns consecutive positions of messages in a working set, and starts again at its end.
class Walk {
 public:
  Walk(size_t span, size_t message_bytes)
      : span_(span), step_((message_bytes + kAlignment - 1) / kAlignment * kAlignment) {}
  size_t Next() {
    const size_t here = position_;
    position_ += step_;
    if (position_ + step_ > span_) position_ = 0;
    return here;
  }

 private:
  static constexpr size_t kAlignment = 64;
  size_t span_, step_, position_ = 0;
};

}  // namespace rdma_bench
