// Defines arc4random for this library alone. The static C++ library refers to it
// (std::random_device of GCC 12), and glibc has it from 2.36 on. With this definition the library
// loads on glibc 2.35. Nothing in the library calls it.
#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

extern "C" [[gnu::visibility("hidden")]] uint32_t arc4random() noexcept {
  uint32_t value = 0;
  if (getrandom(&value, sizeof value, 0) != sizeof value) abort();
  return value;
}
