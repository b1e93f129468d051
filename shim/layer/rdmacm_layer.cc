// The forwarding librdmacm.so.1: loads the library behind it and installs the trace.
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>

#include "shim/layer/caller.h"
#include "shim/layer/forward.h"
#include "shim/layer/module.h"
#include "shim/layer/trace/install.h"
#include "shim/layer/trace/recorder.h"

namespace rdmaemu::layer {
namespace {

// Fails with ENOSYS, and prints a note at the first call. Slots of functions that the library
// behind lacks point to this function. When the library behind is not loaded, all slots do.
intptr_t Missing() {
  static bool is_said;
  if (!is_said)
    fprintf(
        stderr,
        "rdmaemu: the program called a function that the librdmacm.so.1 behind the layer lacks\n");
  is_said = true;
  errno = ENOSYS;
  return -1;
}

__attribute__((constructor)) void Load() {
  void* const behind =
      LoadBehind("RDMAEMU_LAYER_RDMACM", "librdmacm.so.1", reinterpret_cast<void (*)()>(Missing));
  if (behind != nullptr) rdmaemu_layer_add_library(dlsym(behind, "rdma_create_id"), false);
  rdmaemu_layer_add_library(reinterpret_cast<const void*>(Load), true);
  InstallModules("rdmaemu_module_install_cm");
  if (rdmaemu_layer_is_tracing()) trace::InstallCm();
}

}  // namespace
}  // namespace rdmaemu::layer
