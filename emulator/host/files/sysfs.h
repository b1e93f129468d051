// The files under /sys and /dev by which Linux shows RDMA devices to programs:
// /sys/class/infiniband, infiniband_verbs, infiniband_mad and misc/rdma_cm, and /dev/infiniband.
//
// Names, formats and modes are the kernel's (drivers/infiniband/core/sysfs.c, uverbs_main.c,
// user_mad.c, cm.c). They were compared with the files of rdma_rxe and siw in a virtual machine.
// docs/filesystem.md lists the differences.
#pragma once

#include <vector>

#include "emulator/host/files/file_node.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu::files {

// Returns the root directory of the files of these devices. The devices must outlive the
// directories that it makes.
LazyDirectory SystemFiles(Verbs& verbs, std::vector<Device*> devices);

// Returns N of a device's nodes uverbsN and umadN.
uint32_t DeviceNumber(const Device& device);

}  // namespace rdmaemu::files
