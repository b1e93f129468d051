// Flat structs for two commands whose structs in rdma_user_cm.h hold a pointer or a flexible array.
// All other commands use the kernel's structs.
#pragma once

#include <cstdint>

#include "emulator/base/uapi.h"

namespace rdmaemu {

inline constexpr uint32_t kMaxCmOptionBytes = 512;

struct CmSetOption {
  rdma_ucm_set_option command;  // optval is not used
  uint8_t value[kMaxCmOptionBytes];
};
struct CmQueryPathOut {
  uint32_t num_paths;
  uint32_t reserved;
  ib_path_rec_data paths[2];
};

}  // namespace rdmaemu
