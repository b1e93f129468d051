// The one table of all calls from a program to its host. The build makes these parts from the
// table:
// - the numbers (calls.h),
// - the names in traces and fault rules,
// - the host's dispatch.
//
// The table also gives each call's object, the call's route when several hosts share a process, and
// the objects that the call ends.
//
// A new call needs four edits. They are a line here, its structs in calls.h, its handler of the
// same name in emulator/host/verbs_calls.cc, and its function in the library. A line's position
// among the verbs calls gives the call's number, so a new line changes kCallVersion. tests/purity
// finds a second list of calls.
#pragma once

#include <cstdint>
#include <iterator>
#include <string_view>

#include "emulator/base/call_spelling.h"

namespace rdmaemu {

// The object of a call, if a fault rule can name the object.
enum class CallAbout : uint8_t {
  kNothing,
  kHandle,     // In begins with a handle
  kQueuePair,  // In begins with a QP's handle
  kDevice,     // In begins with a device's index
};

// Selects the host that gets a call when several hosts are in one process.
enum class CallRoute : uint8_t {
  kEntered,    // the host that the calling thread has entered
  kByNumber,   // In begins with a handle, a channel, a segment or a device's index
  kByDevice,   // ListDevicesIn names the device
  kByChannel,  // CmCreateChannelIn names the channel
};

// Bits of CallInfo::traits.
enum CallTrait : uint32_t {
  kPlain = 0,
  // The call may end an object that posted work needs: the QP, the state to send in, an address
  // handle, memory, or the device.
  kEndsWhatPostsNeed = 1,
  // The call may end QPs, contexts or objects with asynchronous events.
  kEndsObjects = 2,
  // The call destroys an object. Such a call returns 0 when the host has ended.
  kDestroys = 4,
  // The call counts completions. The device must first complete all work that can complete.
  kCountsCompletions = 8,
  // The call is about the host itself, or a part of a request that the program executed itself. No
  // fault rule applies to it.
  kOfHost = 16,
  // The reply contains a counter, on which threads may wait.
  kBringsCounter = 32,
  // The call may have an empty In.
  kInMayBeEmpty = 64,
  // A sequence may contain the call (sequence.h).
  kMayBeStep = 128,
};

// X(name, In, Out, about, route, traits), in the order of their numbers. Out is Nothing for a call
// that returns nothing.

// emulator/host/host.cc answers these.
#define RDMAEMU_HOST_CALLS(X)                                              \
  X(Hello, HelloIn, HelloOut, kNothing, kEntered, kOfHost)                 \
  X(MapSegment, MapSegmentIn, MapSegmentOut, kNothing, kByNumber, kOfHost) \
  X(HostStatus, Nothing, HostStatusOut, kNothing, kEntered, kOfHost)       \
  X(HostStop, Nothing, Nothing, kNothing, kEntered, kOfHost)

// The handlers of emulator/host/verbs_calls.cc answer these.
#define RDMAEMU_VERBS_CALLS(X)                                                             \
  X(ListDevices, ListDevicesIn, ListDevicesOut, kNothing, kByDevice, kInMayBeEmpty)        \
  X(OpenDevice, OpenDeviceIn, OpenDeviceOut, kDevice, kByNumber, kBringsCounter)           \
  X(CloseDevice, HandleIn, Nothing, kHandle, kByNumber,                                    \
    kEndsWhatPostsNeed | kEndsObjects | kDestroys)                                         \
  X(QueryDevice, HandleIn, QueryDeviceOut, kHandle, kByNumber, kPlain)                     \
  X(QueryPort, QueryPortIn, QueryPortOut, kHandle, kByNumber, kPlain)                      \
  X(QueryGids, QueryGidsIn, QueryGidsOut, kHandle, kByNumber, kPlain)                      \
  X(QueryPkey, QueryPkeyIn, QueryPkeyOut, kHandle, kByNumber, kPlain)                      \
  X(QueryClock, HandleIn, QueryClockOut, kHandle, kByNumber, kPlain)                       \
  X(GetAsyncEvent, HandleIn, GetAsyncEventOut, kHandle, kByNumber, kPlain)                 \
  X(AllocPd, AllocPdIn, HandleOut, kHandle, kByNumber, kPlain)                             \
  X(DeallocPd, HandleIn, Nothing, kHandle, kByNumber, kDestroys)                           \
  X(RegMr, RegMrIn, MrOut, kHandle, kByNumber, kPlain)                                     \
  X(ReregMr, ReregMrIn, MrOut, kHandle, kByNumber, kEndsWhatPostsNeed)                     \
  X(DeregMr, HandleIn, Nothing, kHandle, kByNumber, kEndsWhatPostsNeed | kDestroys)        \
  X(AllocMw, AllocMwIn, MwOut, kHandle, kByNumber, kPlain)                                 \
  X(DeallocMw, HandleIn, Nothing, kHandle, kByNumber, kEndsWhatPostsNeed | kDestroys)      \
  X(CreateChannel, HandleIn, CreateChannelOut, kHandle, kByNumber, kBringsCounter)         \
  X(DestroyChannel, HandleIn, Nothing, kHandle, kByNumber, kDestroys)                      \
  X(TakeChannelOverflow, HandleIn, TakeChannelOverflowOut, kHandle, kByNumber, kPlain)     \
  X(CreateCq, CreateCqIn, CqOut, kHandle, kByNumber, kPlain)                               \
  X(ResizeCq, ResizeCqIn, CqOut, kHandle, kByNumber, kCountsCompletions)                   \
  X(DestroyCq, HandleIn, DestroyCqOut, kHandle, kByNumber, kEndsObjects | kDestroys)       \
  X(RaiseCq, RaiseCqIn, Nothing, kHandle, kByNumber, kOfHost)                              \
  X(OpenLane, OpenLaneIn, OpenLaneOut, kHandle, kByNumber, kOfHost)                        \
  X(CloseLanes, HandleIn, Nothing, kHandle, kByNumber, kOfHost)                            \
  X(OpenLaneCounter, HandleIn, Nothing, kHandle, kByNumber, kOfHost)                       \
  X(RaiseLaneEvent, HandleIn, Nothing, kHandle, kByNumber, kOfHost)                        \
  X(CloseSentLane, HandleIn, Nothing, kHandle, kByNumber, kOfHost)                         \
  X(CreateSrq, CreateSrqIn, SrqOut, kHandle, kByNumber, kPlain)                            \
  X(ModifySrq, ModifySrqIn, SrqOut, kHandle, kByNumber, kPlain)                            \
  X(QuerySrq, HandleIn, QuerySrqOut, kHandle, kByNumber, kPlain)                           \
  X(DestroySrq, HandleIn, DestroyOut, kHandle, kByNumber, kEndsObjects | kDestroys)        \
  X(CreateQp, CreateQpIn, CreateQpOut, kHandle, kByNumber, kMayBeStep)                     \
  X(ModifyQp, ModifyQpIn, Nothing, kQueuePair, kByNumber, kEndsWhatPostsNeed | kMayBeStep) \
  X(QueryQp, HandleIn, QueryQpOut, kQueuePair, kByNumber, kPlain)                          \
  X(DestroyQp, HandleIn, DestroyOut, kQueuePair, kByNumber,                                \
    kEndsWhatPostsNeed | kEndsObjects | kDestroys)                                         \
  X(CreateAh, CreateAhIn, HandleOut, kHandle, kByNumber, kPlain)                           \
  X(DestroyAh, HandleIn, Nothing, kHandle, kByNumber, kEndsWhatPostsNeed | kDestroys)      \
  X(AttachMcast, McastIn, Nothing, kQueuePair, kByNumber, kPlain)                          \
  X(DetachMcast, McastIn, Nothing, kQueuePair, kByNumber, kPlain)

// emulator/host/host.cc answers these. The runtime answers ShareCallPage, Clock and ShareBuffers.
#define RDMAEMU_OTHER_CALLS(X)                                                              \
  X(CmCreateChannel, CmCreateChannelIn, CmChannelOut, kNothing, kByChannel, kBringsCounter) \
  X(CmDestroyChannel, HandleIn, Nothing, kNothing, kByNumber, kDestroys)                    \
  X(ChangeDevice, ChangeDeviceIn, Nothing, kNothing, kEntered, kOfHost)                     \
  X(ShareCallPage, Nothing, Nothing, kNothing, kEntered, kOfHost)                           \
  X(FaultAdd, Nothing, Nothing, kNothing, kEntered, kOfHost)                                \
  X(FaultRemove, Nothing, Nothing, kNothing, kEntered, kOfHost)                             \
  X(FaultClear, Nothing, Nothing, kNothing, kEntered, kOfHost)                              \
  X(FaultList, Nothing, Nothing, kNothing, kEntered, kOfHost)                               \
  X(Clock, ClockIn, ClockOut, kNothing, kEntered, kOfHost)                                  \
  X(FaultRelease, Nothing, Nothing, kNothing, kEntered, kOfHost)                            \
  X(FaultWait, FaultWaitIn, Nothing, kNothing, kEntered, kOfHost)                           \
  X(ReadFile, Nothing, Nothing, kNothing, kEntered, kOfHost)                                \
  X(ShareBuffers, ShareBuffersIn, Nothing, kNothing, kEntered, kOfHost)                     \
  X(Sequence, Nothing, Nothing, kNothing, kEntered, kOfHost)

// Posts and polls that the program executes itself. The program asks the host about them first
// (AskIn).
#define RDMAEMU_ASKED_CALLS(X)                              \
  X(PostSend, AskIn, AskOut, kQueuePair, kByNumber, kPlain) \
  X(PostRecv, AskIn, AskOut, kQueuePair, kByNumber, kPlain) \
  X(PostSrqRecv, AskIn, AskOut, kHandle, kByNumber, kPlain) \
  X(PollCq, AskIn, AskOut, kHandle, kByNumber, kPlain)      \
  X(ReqNotifyCq, AskIn, AskOut, kHandle, kByNumber, kPlain)

#define RDMAEMU_ALL_CALLS(X) \
  RDMAEMU_HOST_CALLS(X)      \
  RDMAEMU_VERBS_CALLS(X)     \
  RDMAEMU_OTHER_CALLS(X)     \
  RDMAEMU_ASKED_CALLS(X)

// Commands of connection management, X(name, traits) in the order of RDMA_USER_CM_CMD_*. Each
// begins with a channel, which selects the host. With the manager iw_cm, DISCONNECT and DESTROY_ID
// end a QP.
#define RDMAEMU_CM_COMMANDS(X)                   \
  X(CREATE_ID, kPlain)                           \
  X(DESTROY_ID, kEndsWhatPostsNeed | kDestroys)  \
  X(BIND_IP, kPlain)                             \
  X(RESOLVE_IP, kPlain)                          \
  X(RESOLVE_ROUTE, kPlain)                       \
  X(QUERY_ROUTE, kPlain)                         \
  X(CONNECT, kPlain)                             \
  X(LISTEN, kPlain)                              \
  X(ACCEPT, kMayBeStep)                          \
  X(REJECT, kPlain)                              \
  X(DISCONNECT, kEndsWhatPostsNeed | kMayBeStep) \
  X(INIT_QP_ATTR, kMayBeStep)                    \
  X(GET_EVENT, kMayBeStep)                       \
  X(GET_OPTION, kPlain)                          \
  X(SET_OPTION, kPlain)                          \
  X(NOTIFY, kPlain)                              \
  X(JOIN_IP_MCAST, kPlain)                       \
  X(LEAVE_MCAST, kPlain)                         \
  X(MIGRATE_ID, kPlain)                          \
  X(QUERY, kMayBeStep)                           \
  X(BIND, kPlain)                                \
  X(RESOLVE_ADDR, kPlain)                        \
  X(JOIN_MCAST, kPlain)                          \
  X(RESOLVE_IB_SERVICE, kPlain)                  \
  X(WRITE_CM_EVENT, kPlain)

enum class CallOp : uint32_t {
  kNone = 0,
#define RDMAEMU_NUMBER(name, ...) k##name,
  RDMAEMU_ALL_CALLS(RDMAEMU_NUMBER)
#undef RDMAEMU_NUMBER
  // kCmCommand + RDMA_USER_CM_CMD_*: In is CmCall<struct rdma_ucm_...>, Out is its response struct.
  kCmCommand = 0x100,
};

struct CallInfo {
  CallSpelling name;  // "create_qp", "connect"
  CallAbout about;
  CallRoute route;
  uint32_t traits;  // CallTrait
};

#define RDMAEMU_INFO(name, in, out, about, route, traits) \
  {CallSpelling(#name), CallAbout::about, CallRoute::route, traits},
inline constexpr CallInfo kCallTable[] = {RDMAEMU_ALL_CALLS(RDMAEMU_INFO)};
#undef RDMAEMU_INFO
#define RDMAEMU_INFO(name, traits) \
  {CallSpelling(#name), CallAbout::kNothing, CallRoute::kByNumber, traits},
inline constexpr CallInfo kCmCommandTable[] = {RDMAEMU_CM_COMMANDS(RDMAEMU_INFO)};
#undef RDMAEMU_INFO

// A function, without its prefix, that has another name than its call. Messages about fault rules
// suggest the call. docs/trace.md has these names, too.
struct FunctionOfCall {
  std::string_view function, call;
};

inline constexpr FunctionOfCall kFunctionsOfCalls[] = {
    {"get_device_list", "list_devices"},
    {"create_comp_channel", "create_channel"},
    {"destroy_comp_channel", "destroy_channel"},
    {"create_event_channel", "cm_create_channel"},
    {"destroy_event_channel", "cm_destroy_channel"},
    {"bind_addr", "bind"},
    {"join_multicast", "join_mcast"},
    {"leave_multicast", "leave_mcast"},
    {"get_cm_event", "get_event"},
};

// Returns the table's entry for any number. nullptr: no call has this number.
constexpr const CallInfo* InfoOf(uint32_t op) {
  constexpr auto kCmBase = static_cast<uint32_t>(CallOp::kCmCommand);
  if (op >= kCmBase) {
    const uint32_t command = op - kCmBase;
    return command < std::size(kCmCommandTable) ? &kCmCommandTable[command] : nullptr;
  }
  return op >= 1 && op <= std::size(kCallTable) ? &kCallTable[op - 1] : nullptr;
}

constexpr bool HasTrait(uint32_t op, CallTrait trait) {
  const CallInfo* const info = InfoOf(op);
  return info != nullptr && (info->traits & trait) != 0;
}

}  // namespace rdmaemu
