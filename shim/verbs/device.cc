// The device list, and queries for devices that are not open.

#include <stdio.h>
#include <string.h>

#include "shim/verbs/objects.h"

namespace rdmaemu::shim {
namespace {

// The most devices that the library stores. The library stores every device that it ever listed. A
// device pointer that a program holds therefore stays valid, and each listing returns the same
// pointer for the same device. A device that returns after its removal is a new device.
constexpr size_t kMaxKnownDevices = 1024;
Device* g_known[kMaxKnownDevices];
size_t g_known_count = 0;
ForkLock g_known_lock;

Device* NewDevice(const DeviceEntry& entry) {
  Device* device = New<Device>();
  if (device == nullptr) return nullptr;
  device->base.node_type = static_cast<ibv_node_type>(entry.node_type);
  device->base.transport_type = static_cast<ibv_transport_type>(entry.transport_type);
  // The precision limits the host's strings, because the buffers have the same size.
  snprintf(device->base.name, sizeof device->base.name, "%.63s", entry.name);
  snprintf(device->base.dev_name, sizeof device->base.dev_name, "%.63s", entry.dev_name);
  snprintf(device->base.dev_path, sizeof device->base.dev_path, "/sys/class/infiniband_verbs/%s",
           device->base.dev_name);
  snprintf(device->base.ibdev_path, sizeof device->base.ibdev_path, "/sys/class/infiniband/%s",
           device->base.name);
  device->index = entry.index;
  device->node_guid_be = entry.node_guid;
  return device;
}

Device* Known(const DeviceEntry& entry) {
  ForkLockGuard guard(g_known_lock);
  for (size_t i = 0; i < g_known_count; i++) {
    Device* device = g_known[i];
    if (device->index == entry.index && device->node_guid_be == entry.node_guid &&
        device->base.transport_type == entry.transport_type &&
        strncmp(device->base.name, entry.name, sizeof entry.name) == 0) {
      return device;
    }
  }
  if (g_known_count == kMaxKnownDevices) return nullptr;
  Device* device = NewDevice(entry);
  if (device != nullptr) g_known[g_known_count++] = device;
  return device;
}

}  // namespace
}  // namespace rdmaemu::shim

using namespace rdmaemu;
using namespace rdmaemu::shim;

namespace {

ibv_device** ListDevices(const ListDevicesIn& of, int* count_out) {
  if (count_out != nullptr) *count_out = 0;
  auto** list = static_cast<ibv_device**>(calloc(kMaxDevices + 1, sizeof(ibv_device*)));
  // Not on the stack: threads of programs may have 16 KiB for all their calls.
  ListDevicesOut* const reply = list == nullptr ? nullptr : New<ListDevicesOut>();
  if (reply == nullptr) {
    free(list);
    return nullptr;
  }
  const int error = client::Call(CallOp::kListDevices, of, *reply);
  if (error != 0) {
    free(reply);
    if (error == EINTR) {  // after NULL the program can retry; an empty list would look final
      free(list);
      list = nullptr;
    }
    errno = error;
    return list;
  }
  int count = 0;
  for (uint32_t i = 0; i < reply->count && i < kMaxDevices; i++) {
    Device* device = Known(reply->devices[i]);
    if (device != nullptr) list[count++] = &device->base;
  }
  free(reply);
  if (count_out != nullptr) *count_out = count;
  return list;
}

}  // namespace

// Follows ibv_get_device_list(3). If the host is unreachable, prints the reason, sets errno and
// returns an empty list.
RDMAEMU_EXPORT ibv_device** ibv_get_device_list(int* count_out) {
  return ListDevices({}, count_out);
}

extern "C" ibv_device** rdmaemu_client_devices_beside(uint32_t index, int* count) {
  return ListDevices({index, 1}, count);
}

RDMAEMU_EXPORT void ibv_free_device_list(ibv_device** list) { free(list); }

RDMAEMU_EXPORT const char* ibv_get_device_name(ibv_device* device) { return device->name; }

RDMAEMU_EXPORT int ibv_get_device_index(ibv_device* device) {
  return static_cast<int>(Of(device)->index);
}

RDMAEMU_EXPORT __be64 ibv_get_device_guid(ibv_device* device) { return Of(device)->node_guid_be; }
