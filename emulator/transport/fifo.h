// A queue that reuses its slots. A slot keeps the memory that its element allocated, so a queue of
// steady length allocates nothing. The queue grows by doubling. Callers must bound its length.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace rdmaemu::transport {

template <class T>
class Fifo {
 public:
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t index) { return slots_[(head_ + index) & (slots_.size() - 1)]; }
  const T& operator[](size_t index) const { return slots_[(head_ + index) & (slots_.size() - 1)]; }
  T& front() { return (*this)[0]; }
  const T& front() const { return (*this)[0]; }
  T& back() { return (*this)[size_ - 1]; }

  // Appends an element and returns it. The element has the old content of its slot, so the caller
  // must set every field.
  T& PushSlot() {
    if (size_ == slots_.size()) Grow();
    size_++;
    return back();
  }
  void Push(T value) { PushSlot() = std::move(value); }
  void PopFront() {
    head_ = (head_ + 1) & (slots_.size() - 1);
    size_--;
  }
  void PopBack() { size_--; }
  void Clear() { size_ = 0; }
  // Empties the queue and frees its memory.
  void Release() {
    slots_ = {};
    head_ = size_ = 0;
  }

 private:
  void Grow() {
    std::vector<T> bigger(slots_.empty() ? 4 : slots_.size() * 2);
    for (size_t i = 0; i < size_; ++i) bigger[i] = std::move((*this)[i]);
    slots_ = std::move(bigger);
    head_ = 0;
  }

  std::vector<T> slots_;  // a power of two
  size_t head_ = 0;
  size_t size_ = 0;
};

}  // namespace rdmaemu::transport
