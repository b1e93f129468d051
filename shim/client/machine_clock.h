// The C library's clock_gettime(2). Another library may have given the program a function of that
// name whose time stands (librdmaemu.so.1 in program time, libfaketime).
#pragma once

#include <dlfcn.h>
#include <time.h>

#include <atomic>

namespace rdmaemu::client {

using ClockFunction = int (*)(clockid_t, timespec*);
inline std::atomic<ClockFunction> g_machine_clock{nullptr};

// Thread-safe.
inline ClockFunction MachineClock() {
  ClockFunction function = g_machine_clock.load(std::memory_order_relaxed);
  if (function != nullptr) return function;
  void* const libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  void* const found = libc == nullptr ? nullptr : dlsym(libc, "clock_gettime");
  function = found == nullptr ? &clock_gettime : reinterpret_cast<ClockFunction>(found);
  g_machine_clock.store(function, std::memory_order_relaxed);
  return function;
}

}  // namespace rdmaemu::client
