// The faults module (librdmaemu_faults.so): fault rules at the API, on any libibverbs and
// librdmacm.
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "shim/layer/faults/call_door.h"
#include "shim/layer/faults/completion_doors.h"
#include "shim/layer/faults/event_doors.h"
#include "shim/layer/faults/kept.h"
#include "shim/layer/faults/memory_door.h"
#include "shim/layer/faults/operation_doors.h"
#include "shim/layer/module.h"

// verbs.h has macros of these names.
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace rdmaemu::layer::faults {
namespace {

// librdmacm reports -1, libibverbs an errno. Functions of libibverbs that wait for an event are an
// exception.
constexpr Report ReportOf(const char* function, CallNumber call) {
  return function[0] == 'r' || call == kCall_ibv_get_async_event ? Report::kMinus : Report::kErrno;
}

// Adopts an object that a function creates, for any caller.
decltype(::ibv_open_device)* g_next_open;
decltype(::ibv_create_qp)* g_next_create_qp;
decltype(::ibv_destroy_qp)* g_next_destroy_qp;

ibv_context* OpenDevice(ibv_device* device) {
  const Caller caller(__builtin_return_address(0));
  ibv_context* const context = g_next_open(device);
  Adopt(context);
  return context;
}

ibv_qp* CreateQp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  const Caller caller(__builtin_return_address(0));
  ibv_qp* const qp = g_next_create_qp(pd, attr);
  Created(qp);
  return qp;
}

int DestroyQp(ibv_qp* qp) {
  const Caller caller(__builtin_return_address(0));
  const ibv_context* const context = qp->context;
  const uint32_t number = qp->qp_num;
  const int error = g_next_destroy_qp(qp);
  if (error != 0) return error;
  ForgetKept(context, number);
  Destroyed(qp, context, number);
  return error;
}

template <CallNumber kCall, Report kReport, class F>
void Install(SlotOfName slot_of, const char* name) {
  using Door = CallDoor<kCall, kReport, F>;
  InterceptBy(slot_of, name, &Door::Call, &Door::next);
}

// Each library has slots for its own functions only.
void InstallCallDoors(SlotOfName slot_of) {
#define CALL(function, subject)                                                           \
  Install<kCall_##function, ReportOf(#function, kCall_##function), decltype(::function)>( \
      slot_of, #function);
#define OPERATION(table, member, subject)
#include "shim/layer/faults/calls.inc"
#undef CALL
#undef OPERATION
}

}  // namespace
}  // namespace rdmaemu::layer::faults

extern "C" {

__attribute__((visibility("default"))) void rdmaemu_module_install_verbs(
    void** (*slot_of)(const char*)) {
  using namespace rdmaemu::layer;
  using namespace rdmaemu::layer::faults;
  OpenDoors();
  InstallCompletionDoor(slot_of);
  InstallMemoryDoor(slot_of);
  InterceptBy(slot_of, "ibv_open_device", OpenDevice, &g_next_open);
  InterceptBy(slot_of, "ibv_create_qp", CreateQp, &g_next_create_qp);
  InterceptBy(slot_of, "ibv_destroy_qp", DestroyQp, &g_next_destroy_qp);
  InstallAsyncEventDoor(slot_of);
  InstallCallDoors(slot_of);
}

__attribute__((visibility("default"))) void rdmaemu_module_install_cm(
    void** (*slot_of)(const char*)) {
  using namespace rdmaemu::layer::faults;
  OpenDoors();
  InstallCmEventDoor(slot_of);
  InstallCallDoors(slot_of);
}
}
