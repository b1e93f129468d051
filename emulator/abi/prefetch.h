// Asks the processor for a cache line that another processor has used last, before the line is
// needed. Neither function reads or changes the memory.
#pragma once

namespace rdmaemu {

inline void PrefetchToRead(const void* line) { __builtin_prefetch(line); }

// __builtin_prefetch would ask for a line to read, because not every x86-64 processor has
// PREFETCHW. Those without it execute the instruction as a no-op.
inline void PrefetchToWrite(const void* line) {
#ifdef __x86_64__
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace rdmaemu
