#include "shim/layer/filter/device_filter.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "shim/layer/forward.h"

// verbs.h has a macro of this name for programs that are linked statically.
#undef ibv_get_device_list

namespace rdmaemu::layer::filter {
namespace {

const char* g_wanted;
decltype(::ibv_get_device_list)* g_next_list;
decltype(::ibv_free_device_list)* g_next_free;

// The program gets `devices`. FreeDeviceList frees this struct and the library's own list, `all`.
struct Filtered {
  Filtered* next;
  ibv_device** all;
  ibv_device* devices[2];
};

pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;
Filtered* g_lists;  // those that the program has not freed

// Removes the struct whose `devices` the program got. Returns nullptr if there is none.
Filtered* Take(ibv_device** devices) {
  pthread_mutex_lock(&g_mutex);
  Filtered** each = &g_lists;
  while (*each != nullptr && (*each)->devices != devices) each = &(*each)->next;
  Filtered* const found = *each;
  if (found != nullptr) *each = found->next;
  pthread_mutex_unlock(&g_mutex);
  return found;
}

// Lists the wanted device alone, or nothing when it does not exist (ibv_get_device_list(3)).
ibv_device** GetDeviceList(int* count) {
  if (count != nullptr) *count = 0;
  ibv_device** const all = g_next_list(nullptr);
  if (all == nullptr) return nullptr;
  auto* const filtered = static_cast<Filtered*>(calloc(1, sizeof(Filtered)));
  if (filtered == nullptr) {
    g_next_free(all);
    errno = ENOMEM;
    return nullptr;
  }
  filtered->all = all;
  for (ibv_device** each = all; *each != nullptr; each++) {
    if (strcmp((*each)->name, g_wanted) == 0) filtered->devices[0] = *each;
  }
  pthread_mutex_lock(&g_mutex);
  filtered->next = g_lists;
  g_lists = filtered;
  pthread_mutex_unlock(&g_mutex);
  if (count != nullptr) *count = filtered->devices[0] == nullptr ? 0 : 1;
  return filtered->devices;
}

// The machine's librdmacm may have lists that it did not get by GetDeviceList.
void FreeDeviceList(ibv_device** list) {
  if (list == nullptr) return;
  Filtered* const filtered = Take(list);
  if (filtered == nullptr) return g_next_free(list);
  g_next_free(filtered->all);
  free(filtered);
}

}  // namespace

void Install() {
  g_wanted = getenv("RDMAEMU_LAYER_DEVICE");
  if (g_wanted == nullptr) return;
  Intercept("ibv_get_device_list", GetDeviceList, &g_next_list);
  Intercept("ibv_free_device_list", FreeDeviceList, &g_next_free);
}

}  // namespace rdmaemu::layer::filter
