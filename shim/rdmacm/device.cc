// The devices of librdmacm (rdma_get_devices(3)). Each device is opened once per process and
// remains open. It has one protection domain while ids use the device.
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "shim/rdmacm/internal.h"

namespace rdmaemu::rdmacm {
namespace {

struct DeviceTable {
  Mutex mutex;
  Device* first = nullptr;  // never removed, because ids hold pointers
};

// The table is never destroyed, because other threads may use their ids while the program exits.
constinit union DeviceStorage {
  constexpr DeviceStorage() : table() {}
  ~DeviceStorage() {}
  DeviceTable table;
} g_device_storage;
DeviceTable& Table() { return g_device_storage.table; }

// A thread holds this mutex during calls to the host.
Mutex& TableMutex() { return Table().mutex; }

uint8_t ClampDepth(int value) { return static_cast<uint8_t>(std::clamp(value, 0, 255)); }

bool Open(ibv_device* found, Device& device) {
  device.verbs = ibv_open_device(found);
  if (device.verbs == nullptr) return false;
  device.opened = verbs_get_ctx(device.verbs);
  device.node_guid = ibv_get_device_guid(found);
  device.index = static_cast<uint32_t>(ibv_get_device_index(found));
  device.generation = rdmaemu_client_host_generation();
  ibv_device_attr attributes = {};
  if (const int error = ibv_query_device(device.verbs, &attributes); error != 0) {
    ibv_close_device(device.verbs);
    errno = error;
    return false;
  }
  device.max_initiator_depth = ClampDepth(attributes.max_qp_init_rd_atom);
  device.max_responder_resources = ClampDepth(attributes.max_qp_rd_atom);
  return true;
}

Device* Find(DeviceTable& table, uint64_t node_guid, uint32_t index) {
  for (Device* device = table.first; device != nullptr; device = device->next) {
    if (device->node_guid == node_guid && device->index == index &&
        device->generation == rdmaemu_client_host_generation()) {
      return device;
    }
  }
  return nullptr;
}

// Closes the descriptors of a device whose embedded host was closed. The host answers no more
// calls, and no thread waits for its events.
void GiveUp(Device& device) {
  if (device.generation == rdmaemu_client_host_generation() || device.given_up) return;
  device.given_up = true;
  if (device.users > 0) return;
  close(device.verbs->async_fd);
  close(device.verbs->cmd_fd);
}

void OpenInto(DeviceTable& table, ibv_device* found) {
  Owned<Device> device(Make<Device>());
  if (device.get() == nullptr) {
    errno = ENOMEM;
    return;
  }
  if (!Open(found, *device)) return;
  Device** last = &table.first;  // the order of the device list
  while (*last != nullptr) last = &(*last)->next;
  *last = device.Release();
}

// Opens the listed devices that `wanted` selects and that are not open yet. Sets errno when a
// device cannot be opened.
template <class Wanted>
void OpenMissing(DeviceTable& table, ibv_device** found, Wanted wanted) {
  for (Device* device = table.first; device != nullptr; device = device->next) GiveUp(*device);
  for (ibv_device** each = found; *each != nullptr; ++each) {
    const uint64_t node_guid = ibv_get_device_guid(*each);
    const auto index = static_cast<uint32_t>(ibv_get_device_index(*each));
    if (wanted(node_guid, index) && Find(table, node_guid, index) == nullptr) {
      OpenInto(table, *each);
    }
  }
}

}  // namespace

Device* AcquireDevice(uint64_t node_guid, uint32_t index) {
  UnlockInChildren<TableMutex>();
  DeviceTable& table = Table();
  MutexLock lock(table.mutex);
  Device* device = Find(table, node_guid, index);
  if (device == nullptr) {
    // The host of the id may differ from the host of the calling thread.
    errno = ENODEV;
    ibv_device** found = rdmaemu_client_devices_beside(index, nullptr);
    if (found == nullptr) return nullptr;
    OpenMissing(table, found, [&](uint64_t other_guid, uint32_t other_index) {
      return other_guid == node_guid && other_index == index;
    });
    ibv_free_device_list(found);
    device = Find(table, node_guid, index);
    if (device == nullptr) return nullptr;
  }
  if (device->pd == nullptr) {
    device->pd = ibv_alloc_pd(device->verbs);
    if (device->pd == nullptr) return nullptr;
  }
  ++device->users;
  return device;
}

void ReleaseDevice(Device* device) {
  MutexLock lock(TableMutex());
  if (--device->users != 0 || device->generation != rdmaemu_client_host_generation()) return;
  if (device->xrcd != nullptr && ibv_close_xrcd(device->xrcd) == 0) device->xrcd = nullptr;
  // When a program destroys its id before its memory regions, the domain is still busy. The next id
  // uses the same domain.
  if (device->pd != nullptr && ibv_dealloc_pd(device->pd) == 0) device->pd = nullptr;
}

uint32_t DevicesInUse() {
  MutexLock lock(TableMutex());
  uint32_t bits = 0;
  for (const Device* device = Table().first; device != nullptr; device = device->next) {
    if (device->users > 0 && device->pd != nullptr && device->index < 32 &&
        device->generation == rdmaemu_client_host_generation() &&
        device->verbs->device->transport_type != IBV_TRANSPORT_IWARP) {
      bits |= uint32_t{1} << device->index;
    }
  }
  return bits;
}

ibv_xrcd* XrcdOf(Device* device) {
  MutexLock lock(TableMutex());
  if (device->xrcd == nullptr) {
    ibv_xrcd_init_attr attributes = {};
    attributes.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attributes.fd = -1;
    attributes.oflags = O_CREAT;
    device->xrcd = ibv_open_xrcd(device->verbs, &attributes);
  }
  return device->xrcd;
}

}  // namespace rdmaemu::rdmacm

extern "C" {

// Returns the devices in the host's current list. Removed devices stay usable for programs that
// hold them.
ibv_context** rdma_get_devices(int* num_devices) {
  using namespace rdmaemu::rdmacm;
  UnlockInChildren<TableMutex>();
  DeviceTable& table = Table();
  MutexLock lock(table.mutex);
  int listed = 0;
  errno = ENODEV;
  ibv_device** found = ibv_get_device_list(&listed);
  if (found == nullptr) return nullptr;
  OpenMissing(table, found, [](uint64_t, uint32_t) { return true; });
  auto** list = static_cast<ibv_context**>(
      std::calloc(static_cast<size_t>(listed) + 1, sizeof(ibv_context*)));
  int count = 0;
  for (int i = 0; list != nullptr && i < listed; ++i) {
    const Device* device = Find(table, ibv_get_device_guid(found[i]),
                                static_cast<uint32_t>(ibv_get_device_index(found[i])));
    if (device != nullptr) list[count++] = device->verbs;
  }
  const int error = list == nullptr ? ENOMEM : errno;
  ibv_free_device_list(found);
  if (count == 0) {
    std::free(list);
    errno = error;
    return nullptr;
  }
  if (num_devices != nullptr) *num_devices = count;
  return list;
}

void rdma_free_devices(ibv_context** list) { std::free(list); }

}  // extern "C"
