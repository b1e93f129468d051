// A user of the layer that needs more than libc is a module. A module is a separate shared library
// that contains its own C++ library. The layer loads a module only when the module's variable
// contains a path, so other programs do not pay for it.
#pragma once

#include "shim/layer/caller.h"

// The layer's libibverbs.so.1 exports this function. Registers `function`, which is called when the
// program ends by exit(3), after the destructors of the program and of the libraries that use the
// layer. There is at most one function. A second call replaces the first.
extern "C" {
RDMAEMU_LAYER_SHARED void rdmaemu_layer_at_exit(void (*function)());
}

namespace rdmaemu::layer {

// A module exports two functions of this type, rdmaemu_module_install_verbs and
// rdmaemu_module_install_cm. Each of the layer's libraries calls the one for it in its constructor.
// `slot_of` finds a slot of that library (forward.h).
using InstallModule = void(void** (*slot_of)(const char* name));

// Loads the modules that the environment names, in the order in which calls pass them outwards
// (faults before checks). Calls `function` of each. When a requested module cannot be loaded,
// prints an error to standard error and ends the process with status 127. A run without its faults
// or checks would otherwise succeed wrongly.
void InstallModules(const char* function);

// Acts as Intercept (forward.h), for modules.
template <class Function>
void InterceptBy(void** (*slot_of)(const char*), const char* name, Function* function,
                 Function** next) {
  void** const slot = slot_of(name);
  if (slot == nullptr) return;
  *next = reinterpret_cast<Function*>(*slot);
  *slot = reinterpret_cast<void*>(function);
}

}  // namespace rdmaemu::layer
