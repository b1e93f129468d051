// Defines arc4random for the file that is linked with it. The static C++ library refers to it
// (std::random_device of GCC 12), and glibc has it from 2.36 on. With this definition the file runs
// on glibc 2.35. Nothing in it calls the function.
#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

extern "C" [[gnu::visibility("hidden")]] uint32_t arc4random() noexcept {
  uint32_t value = 0;
  if (getrandom(&value, sizeof value, 0) != sizeof value) abort();
  return value;
}
