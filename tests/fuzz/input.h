// Reads a fuzzer's bytes as choices from the front. Missing bytes read as zero, so that every input
// is valid and ends.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>

namespace rdmaemu::fuzz {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(data, size) {}

  bool empty() const { return rest_.empty(); }
  uint8_t U8() { return Number<uint8_t>(); }
  uint16_t U16() { return Number<uint16_t>(); }
  uint32_t U32() { return Number<uint32_t>(); }
  uint64_t U64() { return Number<uint64_t>(); }
  // Returns a number in [0, bound). Reads one byte for a small bound. bound must not be 0.
  uint32_t Below(uint32_t bound) { return (bound <= 256 ? U8() : U32()) % bound; }
  // Returns true once in `times`.
  bool OneIn(uint32_t times) { return Below(times) == times - 1; }
  template <class Container>
  auto& Pick(Container& from) {
    return from[Below(static_cast<uint32_t>(std::size(from)))];
  }
  // Returns at most `most` bytes, fewer at the end.
  std::span<const std::byte> Bytes(size_t most) {
    const auto taken = rest_.first(std::min(most, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return std::as_bytes(taken);
  }
  std::span<const std::byte> Rest() { return Bytes(rest_.size()); }

  // Returns a 32-bit number that is often a boundary value.
  uint32_t Edge32() {
    constexpr uint32_t kEdges[] = {0, 1, 2, 0x7f, 0xff, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff};
    const uint8_t kind = U8();
    if (kind < 96) return kind;
    if (kind < 96 + std::size(kEdges)) return kEdges[kind - 96];
    return kind < 176 ? U16() : U32();
  }

 private:
  template <class T>
  T Number() {
    T value = 0;
    const auto bytes = Bytes(sizeof value);
    std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }

  std::span<const uint8_t> rest_;
};

}  // namespace rdmaemu::fuzz

// Each target defines this function.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
