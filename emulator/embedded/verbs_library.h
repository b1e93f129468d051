// What the libibverbs.so.1 of this process exports for librdmaemu.so.1 (shim/client/client_abi.h).
#pragma once

#include <dlfcn.h>

namespace rdmaemu::embedded {

// nullptr when the process runs on another libibverbs.so.1, or on none. A library that was loaded
// with RTLD_LOCAL, as Python loads its modules' libraries, is found by its SONAME alone.
template <class Function>
Function* FindInLibrary(const char* name) {
  void* function = dlsym(RTLD_DEFAULT, name);
  if (function == nullptr) {
    void* const library = dlopen("libibverbs.so.1", RTLD_NOLOAD | RTLD_LAZY);
    if (library != nullptr) function = dlsym(library, name);
  }
  return reinterpret_cast<Function*>(function);
}

}  // namespace rdmaemu::embedded
