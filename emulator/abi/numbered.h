// A struct that one process publishes in shared memory for another one. Its first member is
// `uint32_t number`: 0 means that nothing is published, and each publication has another number.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace rdmaemu {

// Publishes `to`, or ends the published one (`to.number` is 0).
template <class T>
void PublishNumbered(T& shared, const T& to) {
  static_assert(std::is_trivially_copyable_v<T> && offsetof(T, number) == 0);
  std::atomic_ref(shared.number).store(0, std::memory_order_seq_cst);
  if (to.number == 0) return;
  std::atomic_thread_fence(std::memory_order_release);
  std::memcpy(reinterpret_cast<std::byte*>(&shared) + sizeof to.number,
              reinterpret_cast<const std::byte*>(&to) + sizeof to.number,
              sizeof to - sizeof to.number);
  std::atomic_ref(shared.number).store(to.number, std::memory_order_release);
}

// Returns the published struct. Its number is 0 if there is none.
template <class T>
T ReadNumbered(T& shared) {
  const uint32_t before = std::atomic_ref(shared.number).load(std::memory_order_seq_cst);
  T copy = shared;
  std::atomic_thread_fence(std::memory_order_acquire);
  const uint32_t after = std::atomic_ref(shared.number).load(std::memory_order_seq_cst);
  copy.number = before == after ? before : 0;
  return copy;
}

}  // namespace rdmaemu
