// Detects Valgrind, which does not support all system calls of this library.
#pragma once

// Valgrind preloads a library with this function into the programs that it runs.
extern "C" void _vgnU_freeres() __attribute__((weak));

namespace rdmaemu::client {

inline bool IsUnderValgrind() { return _vgnU_freeres != nullptr; }

}  // namespace rdmaemu::client
