// The bytes of a reply. Most replies need no memory of their own.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "emulator/abi/sequence.h"

namespace rdmaemu {

class ReplyBody {
 public:
  // Bytes that fit into the object itself.
  static constexpr size_t kInline = kMaxSequenceOutBytes;

  // The object's own bytes are not initialized.
  ReplyBody() {}  // NOLINT(modernize-use-equals-default)
  ReplyBody(const ReplyBody& other) { *this = other; }
  ReplyBody(ReplyBody&& other) noexcept { *this = std::move(other); }
  ReplyBody& operator=(const ReplyBody& other) {
    if (this != &other) assign({other.data(), other.size()});
    return *this;
  }
  ReplyBody& operator=(ReplyBody&& other) noexcept {
    if (this == &other) return *this;
    size_ = std::exchange(other.size_, 0);
    more_ = std::move(other.more_);
    if (size_ > 0 && size_ <= kInline) std::memcpy(own_.data(), other.own_.data(), size_);
    return *this;
  }

  std::byte* data() { return size_ <= kInline ? own_.data() : more_.data(); }
  const std::byte* data() const { return size_ <= kInline ? own_.data() : more_.data(); }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::byte* begin() { return data(); }
  std::byte* end() { return data() + size_; }
  const std::byte* begin() const { return data(); }
  const std::byte* end() const { return data() + size_; }

  void clear() { size_ = 0; }
  // The bytes are those of before, and then 0.
  void resize(size_t size) {
    if (size > kInline) {
      if (size_ <= kInline) more_.assign(own_.data(), own_.data() + size_);
      more_.resize(size);
    } else {
      if (size_ > kInline) std::memcpy(own_.data(), more_.data(), size);
      if (size > size_) std::memset(own_.data() + size_, 0, size - size_);
    }
    size_ = size;
  }
  void assign(std::span<const std::byte> bytes) {
    if (bytes.size() > kInline) {
      more_.assign(bytes.begin(), bytes.end());
    } else if (!bytes.empty()) {
      std::memmove(own_.data(), bytes.data(), bytes.size());
    }
    size_ = bytes.size();
  }

 private:
  size_t size_ = 0;
  std::vector<std::byte> more_;  // the bytes if they do not fit
  std::array<std::byte, kInline> own_;
};

}  // namespace rdmaemu
