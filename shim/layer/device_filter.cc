// A preload layer between a program and its libibverbs.so.1, the machine's own or ours. The program
// sees only the device that RDMAEMU_LAYER_DEVICE names, also in rdma_get_devices. The layer keeps
// the real list and frees it with the program's list.
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// verbs.h has a macro of this name, which would rename our function.
#undef ibv_get_device_list

namespace {

// The version that programs linked against any rdma-core since 2007 use.
constexpr const char* kNode = "IBVERBS_1.1";

using GetList = ibv_device** (*)(int*);
using FreeList = void (*)(ibv_device**);

template <class Function>
Function Next(const char* name) {
  auto* const found = dlvsym(RTLD_NEXT, name, kNode);
  if (found == nullptr) {
    fprintf(stderr, "rdmaemu: no %s@%s behind the preload layer; does CMD use libibverbs.so.1?\n",
            name, kNode);
    errno = ENOSYS;
  }
  return reinterpret_cast<Function>(found);
}

// The caller gets `devices`. The real list is freed with it.
struct Filtered {
  ibv_device** all;
  ibv_device* devices[2];
};

}  // namespace

// Works as ibv_get_device_list(3), with at most one device.
extern "C" __attribute__((visibility("default"))) ibv_device** ibv_get_device_list(int* count) {
  if (count != nullptr) *count = 0;
  const auto next = Next<GetList>("ibv_get_device_list");
  if (next == nullptr) return nullptr;
  ibv_device** const all = next(nullptr);
  if (all == nullptr) return nullptr;
  auto* const filtered = static_cast<Filtered*>(calloc(1, sizeof(Filtered)));
  if (filtered == nullptr) {
    if (const auto free_list = Next<FreeList>("ibv_free_device_list")) free_list(all);
    errno = ENOMEM;
    return nullptr;
  }
  filtered->all = all;
  const char* const wanted = getenv("RDMAEMU_LAYER_DEVICE");
  for (ibv_device** each = all; wanted != nullptr && *each != nullptr; each++) {
    if (strcmp((*each)->name, wanted) == 0) filtered->devices[0] = *each;
  }
  if (count != nullptr) *count = filtered->devices[0] == nullptr ? 0 : 1;
  return filtered->devices;
}

extern "C" __attribute__((visibility("default"))) void ibv_free_device_list(ibv_device** list) {
  if (list == nullptr) return;
  auto* const filtered =
      reinterpret_cast<Filtered*>(reinterpret_cast<char*>(list) - offsetof(Filtered, devices));
  if (const auto free_list = Next<FreeList>("ibv_free_device_list")) free_list(filtered->all);
  free(filtered);
}
