// Names of verbs.h of rdma-core 45 and later that this project uses, for builds with older headers.
// Source of each value: infiniband/verbs.h and rdma/ib_user_verbs.h of rdma-core 56.1.
#pragma once

#include <cstdint>

namespace rdmaemu {

// Bits of ibv_device_attr_ex::device_cap_flags_ex (ib_uverbs_device_cap_flags).
inline constexpr uint64_t kDeviceCapFlushGlobal = uint64_t{1} << 38;
inline constexpr uint64_t kDeviceCapFlushPersistent = uint64_t{1} << 39;
inline constexpr uint64_t kDeviceCapAtomicWrite = uint64_t{1} << 40;

// IBV_ACCESS_FLUSH_GLOBAL and _PERSISTENT
inline constexpr int kAccessFlushGlobal = 1 << 8;
inline constexpr int kAccessFlushPersistent = 1 << 9;
inline constexpr int kAccessFlush = kAccessFlushGlobal | kAccessFlushPersistent;

inline constexpr uint32_t kWrFlush = 14;                // IBV_WR_FLUSH
inline constexpr uint32_t kWcFlush = 8;                 // IBV_WC_FLUSH
inline constexpr uint64_t kQpExWithFlush = 1ull << 11;  // IBV_QP_EX_WITH_FLUSH

// ib_placement_type, bits
inline constexpr uint8_t kFlushGlobal = 1;
inline constexpr uint8_t kFlushPersistent = 2;
// ib_selectivity_level
inline constexpr uint8_t kFlushRange = 0;
inline constexpr uint8_t kFlushRegion = 1;  // IBV_FLUSH_MR

// The layout of rxe_send_wr::wr.flush (rdma_user_rxe.h). The member is at the beginning of the
// union. Its length is not used: rxe_dma_info::length has it.
struct FlushRequest {
  uint64_t remote_address;
  uint32_t length;
  uint32_t rkey;
  uint8_t placement;
  uint8_t selectivity;
};

}  // namespace rdmaemu
