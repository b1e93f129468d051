// A user of the layer that needs more than libc is a module: a shared library of its own, with its
// C++ library inside. The layer loads a module only when its variable contains a path, so other
// programs do not pay for it.
#pragma once

#include "shim/layer/caller.h"

// The layer's libibverbs.so.1 exports this function. It calls `function` when the program ends by
// exit(3), after the destructors of the program and of the libraries that use the layer. At most
// one function; a second call replaces the first.
extern "C" {
RDMAEMU_LAYER_SHARED void rdmaemu_layer_at_exit(void (*function)());
}

namespace rdmaemu::layer {

// A module exports two functions of this type, rdmaemu_module_install_verbs and
// rdmaemu_module_install_cm. Each layer's library calls its own one in its constructor. `slot_of`
// finds a slot of that library (forward.h).
using InstallModule = void(void** (*slot_of)(const char* name));

// Loads the modules that the environment asks for, in the order in which calls go outwards (faults
// before checks), and calls `function` of each. Prints an error to standard error and ends the
// process with status 127 when a module is wanted and cannot be loaded: a run without its faults or
// checks would pass for the wrong reason.
void InstallModules(const char* function);

// As Intercept (forward.h), for modules.
template <class Function>
void InterceptBy(void** (*slot_of)(const char*), const char* name, Function* function,
                 Function** next) {
  void** const slot = slot_of(name);
  if (slot == nullptr) return;
  *next = reinterpret_cast<Function*>(*slot);
  *slot = reinterpret_cast<void*>(function);
}

}  // namespace rdmaemu::layer
