// What a program built with the verbs.h of rdma-core 65 uses of ibv_alloc_buf(3) and
// ibv_reg_mr_ex(3). The names are looked up at run time, because an older library lacks them.
#pragma once

#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace rdma_contract::newer {

struct Buffer;  // struct ibv_buf

// struct ibv_mr_init_attr
struct MrInitAttr {
  size_t length = 0;
  int access = 0;
  uint64_t comp_mask = 0;
  uint64_t iova = 0;
  void* addr = nullptr;
  int fd = 0;
  uint64_t fd_offset = 0;
  void* dmah = nullptr;
  Buffer* buf = nullptr;
};
// The end of struct ibv_qp_ex since rdma-core 46.
struct QpEx {
  std::byte before[offsetof(ibv_qp_ex, wr_atomic_write) + sizeof(void*)];
  void (*wr_flush)(ibv_qp_ex*, uint32_t rkey, uint64_t remote_addr, size_t len, uint8_t type,
                   uint8_t level);
};
// IBV_ACCESS_*, IBV_QP_EX_*, IBV_WC_*, IB_UVERBS_DEVICE_*, and the types and levels of a flush
inline constexpr int kAccessFlushGlobal = 1 << 8, kAccessFlushPersistent = 1 << 9;
inline constexpr uint64_t kWithFlush = 1 << 11;
inline constexpr int kWcFlush = 8;
inline constexpr uint64_t kDeviceFlushGlobal = uint64_t{1} << 38;
inline constexpr uint64_t kDeviceFlushPersistent = uint64_t{1} << 39;
inline constexpr uint8_t kFlushGlobal = 1, kFlushPersistent = 2;
inline constexpr uint8_t kFlushRange = 0, kFlushRegion = 1;

inline constexpr uint64_t kIova = 1, kAddr = 2, kFd = 4, kFdOffset = 8, kDmah = 16, kBuf = 32;

struct Library {
  void* (*alloc_buf)(ibv_pd*, size_t, Buffer**) = nullptr;
  void (*free_buf)(Buffer*) = nullptr;
  ibv_mr* (*reg_buf_mr)(ibv_pd*, Buffer*, void*, size_t, int) = nullptr;
  int (*export_fd)(Buffer*) = nullptr;
  ibv_mr* (*reg_mr_ex)(ibv_pd*, MrInitAttr*) = nullptr;
  void* (*alloc_dmah)(ibv_context*, void*) = nullptr;
  int (*port_speed)(ibv_context*, uint32_t, uint64_t*) = nullptr;
  int (*counter_caps)(ibv_context*, void*, size_t) = nullptr;
  void* (*create_counter)(ibv_context*, void*) = nullptr;

  // Returns false if the library is older than rdma-core 65.
  bool Find() {
    return Get("ibv_alloc_buf", "1.17", &alloc_buf) && Get("ibv_free_buf", "1.17", &free_buf) &&
           Get("ibv_reg_buf_mr", "1.17", &reg_buf_mr) &&
           Get("ibv_export_buf_dmabuf_fd", "1.18", &export_fd) &&
           Get("ibv_reg_mr_ex", "1.15", &reg_mr_ex) && Get("ibv_alloc_dmah", "1.15", &alloc_dmah) &&
           Get("ibv_query_port_speed", "1.16", &port_speed) &&
           Get("_ibv_query_comp_cntr_caps", "1.18", &counter_caps) &&
           Get("ibv_create_comp_cntr", "1.18", &create_counter);
  }

 private:
  template <typename Function>
  static bool Get(const char* name, const char* version, Function* function) {
    const std::string node = std::string("IBVERBS_") + version;
    *function = reinterpret_cast<Function>(dlvsym(RTLD_DEFAULT, name, node.c_str()));
    return *function != nullptr;
  }
};

}  // namespace rdma_contract::newer
