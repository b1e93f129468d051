#include "shim/layer/forward.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace rdmaemu::layer {

void* LoadBehind(const char* variable, const char* soname, void (*missing)()) {
  const char* const path = getenv(variable);
  // RTLD_LOCAL keeps the library's names out of the global scope. Objects that are loaded later
  // must bind to the layer's names.
  void* const library = path == nullptr ? nullptr : dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) {
    fprintf(stderr, "rdmaemu: no %s behind the layer: %s; start the program by rdmaemu run\n",
            soname, path == nullptr ? "its variable is not set" : dlerror());
  }
  for (unsigned i = 0; i < kForwardCount; i++) {
    const Forward& forward = kForwards[i];
    void* const found =
        library == nullptr ? nullptr : dlvsym(library, forward.name, forward.version);
    rdmaemu_layer_slots[i] = found != nullptr ? found : reinterpret_cast<void*>(missing);
  }
  return library;
}

void** SlotOf(const char* name) {
  for (unsigned i = 0; i < kForwardCount; i++) {
    if (kForwards[i].is_default && strcmp(kForwards[i].name, name) == 0) {
      return &rdmaemu_layer_slots[i];
    }
  }
  return nullptr;
}

void** SlotOfVersion(const char* name, const char* version) {
  for (unsigned i = 0; i < kForwardCount; i++) {
    const Forward& each = kForwards[i];
    if (strcmp(each.name, name) == 0 && strcmp(each.version, version) == 0) {
      return each.is_default ? nullptr : &rdmaemu_layer_slots[i];
    }
  }
  return nullptr;
}

}  // namespace rdmaemu::layer
