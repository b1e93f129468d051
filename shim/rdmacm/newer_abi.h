// The additions of rdma-core 60 to rdma_cma.h (version node RDMACM_1.4), for builds with older
// headers: its constants, copied from rdma_cma.h and rdma_user_cm.h of that release, and its three
// functions. struct rdma_cm_event kept its size. `param` got a third member, uint64_t arg.
#pragma once

#include <cstdint>
#include <cstring>

#include "shim/rdmacm/ucma_abi.h"

namespace rdmaemu::rdmacm {

// Values of rdma_cm_event_type. They are numbers because the enumeration of an older header ends at
// 15. clang refuses a constant of that type above 15. clang also warns when a variable of that type
// is compared with such a number.
inline constexpr uint32_t kEventAddrinfoResolved = 16;
inline constexpr uint32_t kEventAddrinfoError = 17;
inline constexpr uint32_t kEventUser = kCmEventUser;
inline constexpr uint32_t kEventInternal = kCmEventInternal;

inline rdma_cm_event_type EventType(uint32_t event) {
  return static_cast<rdma_cm_event_type>(event);
}

// rdma_addrinfo::ai_flags of rdma_resolve_addrinfo
inline constexpr int kRaiSa = 0x10;   // use InfiniBand's subnet administrator
inline constexpr int kRaiDns = 0x20;  // use the resolver; the default when neither flag is set

// rdma_cm_event::param.arg
inline void SetArgument(rdma_cm_event& event, uint64_t argument) {
  static_assert(sizeof(event.param) >= sizeof(argument));
  std::memcpy(&event.param, &argument, sizeof(argument));
}

}  // namespace rdmaemu::rdmacm

extern "C" {
int rdma_resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service,
                          const rdma_addrinfo* hints);
int rdma_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** info);
int rdma_write_cm_event(rdma_cm_id* id, rdma_cm_event_type event, int status, uint64_t arg);
}
