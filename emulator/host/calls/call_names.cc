#include "emulator/host/calls/call_names.h"

#include <iterator>

#include "emulator/abi/calls.h"

namespace rdmaemu {
namespace {

// In the order of CallOp, which starts at 1.
constexpr const char* kCallNames[] = {"Hello",
                                      "MapSegment",
                                      "HostStatus",
                                      "HostStop",
                                      "ListDevices",
                                      "OpenDevice",
                                      "CloseDevice",
                                      "QueryDevice",
                                      "QueryPort",
                                      "QueryGids",
                                      "QueryPkey",
                                      "GetAsyncEvent",
                                      "AllocPd",
                                      "DeallocPd",
                                      "RegMr",
                                      "ReregMr",
                                      "DeregMr",
                                      "AllocMw",
                                      "DeallocMw",
                                      "CreateChannel",
                                      "DestroyChannel",
                                      "TakeChannelOverflow",
                                      "CreateCq",
                                      "ResizeCq",
                                      "DestroyCq",
                                      "CreateSrq",
                                      "ModifySrq",
                                      "QuerySrq",
                                      "DestroySrq",
                                      "CreateQp",
                                      "ModifyQp",
                                      "QueryQp",
                                      "DestroyQp",
                                      "CreateAh",
                                      "DestroyAh",
                                      "AttachMcast",
                                      "DetachMcast",
                                      "CmCreateChannel",
                                      "CmDestroyChannel",
                                      "ChangeDevice",
                                      "ShareCallPage",
                                      "FaultAdd",
                                      "FaultRemove",
                                      "FaultClear",
                                      "FaultList",
                                      "Clock",
                                      "FaultRelease",
                                      "FaultWait",
                                      "PostSend",
                                      "PostRecv",
                                      "PostSrqRecv",
                                      "PollCq",
                                      "ReqNotifyCq"};
static_assert(std::size(kCallNames) == static_cast<size_t>(CallOp::kReqNotifyCq));

// In the order of RDMA_USER_CM_CMD_*.
constexpr const char* kCmCommandNames[] = {
    "CREATE_ID",     "DESTROY_ID",   "BIND_IP",    "RESOLVE_IP",
    "RESOLVE_ROUTE", "QUERY_ROUTE",  "CONNECT",    "LISTEN",
    "ACCEPT",        "REJECT",       "DISCONNECT", "INIT_QP_ATTR",
    "GET_EVENT",     "GET_OPTION",   "SET_OPTION", "NOTIFY",
    "JOIN_IP_MCAST", "LEAVE_MCAST",  "MIGRATE_ID", "QUERY",
    "BIND",          "RESOLVE_ADDR", "JOIN_MCAST", "RESOLVE_IB_SERVICE",
    "WRITE_CM_EVENT"};
static_assert(std::size(kCmCommandNames) == kCmCommandWriteEvent + 1);

}  // namespace

const char* CallName(uint32_t op) {
  constexpr auto kCmBase = static_cast<uint32_t>(CallOp::kCmCommand);
  if (op >= kCmBase && op - kCmBase < std::size(kCmCommandNames)) {
    return kCmCommandNames[op - kCmBase];
  }
  if (op >= 1 && op <= std::size(kCallNames)) return kCallNames[op - 1];
  return "unknown";
}

}  // namespace rdmaemu
