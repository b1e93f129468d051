// The command and struct of rdma_write_cm_event(3), RDMA_USER_CM_CMD_WRITE_CM_EVENT. The copy is
// from rdma_user_cm.h of Linux 6.17, because older headers do not have it.
#pragma once

#include <cstdint>

#include "emulator/base/uapi.h"

namespace rdmaemu {

inline constexpr uint32_t kCmCommandWriteEvent = 24;

// The two events that may be written: the first by the program, the second by its librdmacm.
inline constexpr uint32_t kCmEventUser = 18, kCmEventInternal = 19;

// The host returns the argument in the first 8 bytes of rdma_ucm_event_resp::param.
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
