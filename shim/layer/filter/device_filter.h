// The device filter hides all devices but one from a program. The filter also applies to functions
// that list devices through ibv_get_device_list, such as rdma_get_devices.
#pragma once

namespace rdmaemu::layer::filter {

// Installs the filter when the environment variable RDMAEMU_LAYER_DEVICE contains a device's name.
void Install();

}  // namespace rdmaemu::layer::filter
