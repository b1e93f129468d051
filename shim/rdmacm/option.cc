// Options of an id (rdma_set_option(3)) and enhanced connection establishment
// (rdma_set_local_ece(3), rdma_get_remote_ece(3)).
#include <cstring>

#include "shim/rdmacm/internal.h"

extern "C" {

int rdma_set_option(rdma_cm_id* id, int level, int optname, void* optval, size_t optlen) {
  using namespace rdmaemu;
  using namespace rdmaemu::rdmacm;
  if (id == nullptr || (optval == nullptr && optlen != 0)) return Fail(EINVAL);
  CmSetOption option = {};
  if (optlen > sizeof(option.value)) return Fail(EINVAL);
  option.command.id = Private(id).handle;
  option.command.level = static_cast<uint32_t>(level);
  option.command.optname = static_cast<uint32_t>(optname);
  option.command.optlen = static_cast<uint32_t>(optlen);
  if (optlen != 0) std::memcpy(option.value, optval, optlen);
  return ReturnErrno(Call(ChannelOf(Private(id)), RDMA_USER_CM_CMD_SET_OPTION, option));
}

// For an id with a QP the library queries the device itself, so both functions require an id
// without a QP.
int rdma_set_local_ece(rdma_cm_id* id, ibv_ece* ece) {
  using namespace rdmaemu::rdmacm;
  if (id == nullptr || id->qp != nullptr || ece == nullptr || ece->vendor_id == 0 ||
      ece->comp_mask != 0) {
    return Fail(EINVAL);
  }
  Private(id).local_ece = *ece;
  return 0;
}

int rdma_get_remote_ece(rdma_cm_id* id, ibv_ece* ece) {
  using namespace rdmaemu::rdmacm;
  if (id == nullptr || id->qp != nullptr || ece == nullptr) return Fail(EINVAL);
  *ece = Private(id).remote_ece;
  ece->comp_mask = 0;
  return 0;
}

}  // extern "C"
