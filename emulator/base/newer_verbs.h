// Names of verbs.h of rdma-core 45 and later that this project uses, for builds with older headers.
// Source of each value: infiniband/verbs.h and rdma/ib_user_verbs.h of rdma-core 56.1.
#pragma once

#include <cstdint>

namespace rdmaemu {

// Bits of ibv_device_attr_ex::device_cap_flags_ex (ib_uverbs_device_cap_flags).
inline constexpr uint64_t kDeviceCapAtomicWrite = uint64_t{1} << 40;

}  // namespace rdmaemu
