// The C library's clock_gettime(2) and syscall(2). Another library may replace these functions in
// the program by functions that show another time (librdmaemu.so.1 in program time, libfaketime).
#pragma once

#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace rdmaemu::client {

// Returns the C library's function of that name. The function is looked up once and stored in
// `known`. Thread-safe.
template <class Function>
Function OfLibc(std::atomic<Function>& known, const char* name, Function otherwise) {
  Function function = known.load(std::memory_order_relaxed);
  if (function != nullptr) return function;
  void* const libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  void* const found = libc == nullptr ? nullptr : dlsym(libc, name);
  function = found == nullptr ? otherwise : reinterpret_cast<Function>(found);
  known.store(function, std::memory_order_relaxed);
  return function;
}

using ClockFunction = int (*)(clockid_t, timespec*);
inline std::atomic<ClockFunction> g_machine_clock{nullptr};
inline ClockFunction MachineClock() {
  return OfLibc<ClockFunction>(g_machine_clock, "clock_gettime", &clock_gettime);
}

// The machine's monotonic time in nanoseconds.
inline uint64_t MachineNow_ns() {
  timespec now;
  MachineClock()(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

using SyscallFunction = long (*)(long, ...);
inline std::atomic<SyscallFunction> g_machine_syscall{nullptr};
inline SyscallFunction MachineSyscall() {
  return OfLibc<SyscallFunction>(g_machine_syscall, "syscall", &syscall);
}

}  // namespace rdmaemu::client
