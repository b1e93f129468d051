// The device filter: a program sees one device alone, and what follows from it (rdma_get_devices
// too).
#pragma once

namespace rdmaemu::layer::filter {

// Installs the filter when RDMAEMU_LAYER_DEVICE names a device.
void Install();

}  // namespace rdmaemu::layer::filter
