// The forwarding libibverbs.so.1: loads the library behind it and installs the layer's users.
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>

#include "shim/layer/caller.h"
#include "shim/layer/filter/device_filter.h"
#include "shim/layer/forward.h"
#include "shim/layer/module.h"
#include "shim/layer/trace/install.h"
#include "shim/layer/trace/payloads.h"
#include "shim/layer/trace/recorder.h"
#include "shim/verbs/private_nodes.h"

#undef ibv_get_device_list

// Providers read this variable. The library behind sets its own variable while it lists devices.
// GetDeviceList copies that value into this variable.
extern "C" {
extern __attribute__((visibility("default"))) bool verbs_allow_disassociate_destroy;
bool verbs_allow_disassociate_destroy = false;
}
RDMAEMU_IN_ALL_NODES(verbs_allow_disassociate_destroy)

namespace rdmaemu::layer {
namespace {

const bool* g_allow_behind;
void (*g_at_exit)();
decltype(::ibv_get_device_list)* g_next_list;

// Fails with ENOSYS, and prints a note at the first call. Slots of functions that the library
// behind lacks point to this function. When the library behind is not loaded, all slots do.
void* Missing() {
  static bool is_said;
  if (!is_said)
    fprintf(
        stderr,
        "rdmaemu: the program called a function that the libibverbs.so.1 behind the layer lacks\n");
  is_said = true;
  errno = ENOSYS;
  return nullptr;
}

ibv_device** GetDeviceList(int* count) {
  ibv_device** const list = g_next_list(count);
  if (g_allow_behind != nullptr) verbs_allow_disassociate_destroy = *g_allow_behind;
  return list;
}

// ld.so calls Load before the constructors of the program and of all libraries that depend on this
// library.
__attribute__((constructor)) void Load() {
  void* const behind =
      LoadBehind("RDMAEMU_LAYER_VERBS", "libibverbs.so.1", reinterpret_cast<void (*)()>(Missing));
  if (behind != nullptr) {
    // The library behind may have any of the private nodes.
    g_allow_behind = static_cast<const bool*>(dlsym(behind, "verbs_allow_disassociate_destroy"));
    if (g_allow_behind == &verbs_allow_disassociate_destroy) g_allow_behind = nullptr;
    rdmaemu_layer_add_library(dlsym(behind, "ibv_open_device"), false);
  }
  rdmaemu_layer_add_library(reinterpret_cast<const void*>(Load), true);
  Intercept("ibv_get_device_list", GetDeviceList, &g_next_list);
  filter::Install();
  InstallModules("rdmaemu_module_install_verbs");
  trace::OpenRecording(behind != nullptr && dlsym(behind, "rdmaemu_client_call") != nullptr);
  if (rdmaemu_layer_wants_hashes()) trace::OpenPayloads();
  if (rdmaemu_layer_is_tracing()) trace::InstallVerbs();
}

__attribute__((destructor)) void End() {
  if (g_at_exit != nullptr) g_at_exit();
}

}  // namespace
}  // namespace rdmaemu::layer

void rdmaemu_layer_at_exit(void (*function)()) { rdmaemu::layer::g_at_exit = function; }
