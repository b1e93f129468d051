// Finds functions that this process's libibverbs.so.1 exports for librdmaemu.so.1
// (shim/client/client_abi.h).
#pragma once

#include <dlfcn.h>

namespace rdmaemu::embedded {

// Returns nullptr if the process uses another libibverbs.so.1, or none. A library that was loaded
// with RTLD_LOCAL can be found only by its SONAME. Python loads the libraries of its modules in
// this way.
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
