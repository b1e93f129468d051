// What all of the benchmark needs: how it fails, what time it is, and memory whose kind of pages
// is known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

namespace rdma_bench {

// A measurement that cannot be taken ends the program: a wrong figure is worse than none.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws Failure with what was tried and errno's text.
[[noreturn]] void FailErrno(const std::string& what);
inline void Require(bool good, const std::string& what) {
  if (!good) FailErrno(what);
}

// CLOCK_MONOTONIC.
double NowSeconds();

enum class Pages { kOrdinary, kHuge };

// Private anonymous memory, every page touched. kHuge asks for transparent huge pages.
class Buffer {
 public:
  Buffer(size_t bytes, Pages pages);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  // How much of it the kernel backs with huge pages now.
  size_t HugeBytes() const;

 private:
  std::byte* data_;
  size_t bytes_;
};

// Positions of messages one after another in a working set, from its begin again at its end.
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
