// rdma_write_cm_event(3) between a program and its host: RDMA_USER_CM_CMD_WRITE_CM_EVENT and its
// struct, from rdma_user_cm.h of Linux 6.17, which older headers lack.
#pragma once

#include <cstdint>

#include "emulator/base/uapi.h"

namespace rdmaemu {

inline constexpr uint32_t kCmCommandWriteEvent = 24;

// What may be written: by the program, and by its librdmacm.
inline constexpr uint32_t kCmEventUser = 18, kCmEventInternal = 19;

// The argument comes back in the first 8 bytes of rdma_ucm_event_resp::param.
struct CmWriteEvent {
  uint32_t id;
  uint32_t reserved;
  uint32_t event;
  uint32_t status;
  union {
    rdma_ucm_conn_param conn;
    rdma_ucm_ud_param ud;
    uint64_t arg;
  } param;
};

}  // namespace rdmaemu
