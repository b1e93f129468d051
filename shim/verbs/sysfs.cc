// Emulates the files under /sys that programs read about a device. Used for devices that have no
// entry there.

#include <endian.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shim/verbs/objects.h"

namespace rdmaemu::shim {
namespace {

constexpr char kClass[] = "/sys/class/infiniband/";

// Writes the text of an emulated device's file without its newline. Returns false if rxe has no
// such file.
bool EmulatedText(const Device& device, const char* file, char* out, size_t bytes) {
  const uint64_t guid = be64toh(device.node_guid_be);
  const auto word = [guid](int i) { return static_cast<unsigned>(guid >> (48 - 16 * i)) & 0xffff; };
  if (strcmp(file, "node_type") == 0) {
    snprintf(out, bytes, "%s", device.base.node_type == IBV_NODE_RNIC ? "4: RNIC" : "1: CA");
  } else if (strcmp(file, "node_guid") == 0 || strcmp(file, "sys_image_guid") == 0) {
    snprintf(out, bytes, "%04x:%04x:%04x:%04x", word(0), word(1), word(2), word(3));
  } else if (strcmp(file, "node_desc") == 0) {
    snprintf(out, bytes, "%s", device.base.name);
  } else {
    return false;
  }
  return true;
}

int ReadRealFile(const char* folder, const char* file, char* out, size_t bytes) {
  char path[PATH_MAX];
  const int length = snprintf(path, sizeof path, "%s/%s", folder, file);
  if (length <= 0 || static_cast<size_t>(length) >= sizeof path) return MinusOneWith(ENAMETOOLONG);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  const ssize_t got = read(fd, out, bytes);
  close(fd);
  return static_cast<int>(got);
}

// Returns the listed device with this sysfs folder, or nullptr.
Device* DeviceOfFolder(const char* folder, ibv_device** list) {
  for (ibv_device** device = list; device != nullptr && *device != nullptr; device++) {
    if (strcmp((*device)->ibdev_path, folder) == 0) return Of(*device);
  }
  return nullptr;
}

}  // namespace
}  // namespace rdmaemu::shim

using namespace rdmaemu::shim;

RDMAEMU_EXPORT const char* ibv_get_sysfs_path() {
  const char* path = secure_getenv("SYSFS_PATH");
  return path == nullptr || path[0] == '\0' ? "/sys" : path;
}

// Returns the length without a newline, or -1. Reads files outside the InfiniBand class from the
// real file system.
RDMAEMU_EXPORT int ibv_read_sysfs_file(const char* folder, const char* file, char* out,
                                       size_t bytes) {
  int length = -1;
  if (strncmp(folder, kClass, sizeof kClass - 1) != 0) {
    length = ReadRealFile(folder, file, out, bytes);
  } else {
    ibv_device** list = ibv_get_device_list(nullptr);
    const Device* device = DeviceOfFolder(folder, list);
    char text[128];
    if (device != nullptr && EmulatedText(*device, file, text, sizeof text)) {
      length = static_cast<int>(std::min(strlen(text), bytes));
      memcpy(out, text, static_cast<size_t>(length));
    } else {
      errno = ENOENT;
    }
    ibv_free_device_list(list);
  }
  if (length > 0 && out[length - 1] == '\n') length--;
  if (length >= 0 && static_cast<size_t>(length) < bytes) out[length] = '\0';
  return length;
}
