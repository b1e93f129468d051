#include "shim/layer/module.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "shim/layer/caller.h"
#include "shim/layer/forward.h"

namespace rdmaemu::layer {
namespace {

// Each variable contains the path of a module. Calls reach the last module first.
constexpr const char* kVariables[] = {"RDMAEMU_LAYER_FAULTS", "RDMAEMU_LAYER_CHECKS"};
// The exit status of a shell for a command that cannot be run.
constexpr int kNoModule = 127;

void Install(const char* path, const char* function) {
  void* const module = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  void* const install = module == nullptr ? nullptr : dlsym(module, function);
  if (install == nullptr) {
    fprintf(stderr, "rdmaemu: cannot load %s: %s; start the program by rdmaemu run\n", path,
            dlerror());
    _exit(kNoModule);
  }
  rdmaemu_layer_add_library(install, true);
  reinterpret_cast<InstallModule*>(install)(SlotOf);
}

}  // namespace

void InstallModules(const char* function) {
  for (const char* const variable : kVariables) {
    if (const char* const path = getenv(variable)) Install(path, function);
  }
}

}  // namespace rdmaemu::layer
