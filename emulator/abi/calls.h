// The calls from a program to its host: one fixed-layout struct in, one out, as messages of a
// SOCK_SEQPACKET socket (CallHeader and In; ReplyHeader and Out, with descriptors beside it where
// the call says so) or by function call in an embedded host. Verbs structs are verbs.h's own;
// connection management speaks the structs of rdma_user_cm.h.
//
// All calls answer at once: waiting (for an event, for acknowledgements) is the program's side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>

#include "emulator/abi/call_table.h"
#include "emulator/abi/command_structs.h"
#include "emulator/abi/ring.h"
#include "emulator/abi/write_event.h"
#include "emulator/base/region_pages.h"
#include "emulator/base/uapi.h"

namespace rdmaemu {

// Changes with any layout in this file; a host answers another version with EPROTO.
inline constexpr uint32_t kCallVersion = 5;
inline constexpr size_t kMaxCallBytes = 16384;
inline constexpr size_t kMaxReplyBytes = 131072;  // HostStatus alone comes near it
inline constexpr size_t kMaxReplyDescriptors = 4;
inline constexpr uint32_t kMaxDevices = 16;
inline constexpr uint32_t kMaxGidsPerCall = 64;

struct CallHeader {
  uint32_t op;    // CallOp
  uint32_t size;  // bytes of In that follow
};
struct ReplyHeader {
  int32_t error;         // positive errno; 0: Out follows
  uint32_t size;         // bytes of Out that follow
  uint32_t descriptors;  // how many come as SCM_RIGHTS, in the order the call names them
  uint32_t reserved;
};

struct Nothing {
  uint64_t reserved = 0;
};

// ---- the connection

// The first call on a connection. A forked child opens one of its own and shows its parent's
// group token: it then shares the handles of what its parent had made before the fork. Descriptors:
// doorbell eventfd.
struct HelloIn {
  uint32_t version;         // kCallVersion
  uint32_t pid;             // as the program sees it; the host trusts SO_PEERCRED, not this
  uint8_t group_token[16];  // zero: a new group
  uint32_t parent;          // HelloOut::process of the parent; not looked at in a new group
  uint32_t fork;            // the how many-th fork of the parent made this process, from 1
  char program[64];         // for the trace and `rdmaemu hosts`
};
struct HelloOut {
  uint32_t version;
  uint32_t host_pid;  // for PR_SET_PTRACER
  uint32_t process;   // ProcessId
  uint32_t group;
  uint8_t group_token[16];
  SharedSpan doorbells;     // a DoorbellPage
  SharedSpan process_page;  // a ProcessPage
  char host_name[64];
};

// Descriptors: the segment's memfd.
struct MapSegmentIn {
  uint32_t segment;
  uint32_t reserved;
};
struct MapSegmentOut {
  uint64_t length;
};

// kShareCallPage, Nothing in, nothing out, after Hello: the way to call without the socket
// (call_page.h). Descriptors: the memfd of a CallPage. Answered by the socket's server alone.

// The rules of a running host (emulator/host/faults/host_faults.h), for `rdmaemu fault`. In: the
// text of a rule (kFaultAdd), a rule's name (kFaultRemove, kFaultRelease), nothing. Out: JSON text
// as below,
// {"error": TEXT} where the host says no.
inline constexpr size_t kMaxFaultTextBytes = 8192;
// kFaultWait: a FaultWaitIn and a rule's name. It is answered when the rule has fired so often
// since it was added, at once where it has: {"name": NAME, "matched": N, "fired": N}; as above
// where there is no such rule, or it goes meanwhile. Who waits no longer ends the connection.
struct FaultWaitIn {
  uint64_t times;
};

// What `rdmaemu clock` does; needs no Hello. Answered by the socket's server (runtime/clock.h):
// EOPNOTSUPP where the host is embedded, or where its clock is not `manual` and is told to move.
enum class ClockAction : uint32_t { kShow = 1, kAdvance, kRunUntilIdle };
struct ClockIn {
  uint32_t action;  // ClockAction
  uint32_t reserved;
  int64_t advance_ns;  // kAdvance: more than 0
};
struct ClockOut {
  char mode[24];  // as --clock has it
  int64_t now_ns;
  uint32_t moving;  // it was told to move, and has not arrived
  uint32_t awaits_application;
};

struct HostStatusOut {  // JSON text, not terminated; its length is ReplyHeader::size
  char json[1];
};

// ---- devices

struct DeviceEntry {
  char name[64];       // "rxe0"
  char dev_name[64];   // "uverbs0"
  uint64_t node_guid;  // big endian
  uint32_t index;
  int32_t node_type;       // ibv_node_type
  int32_t transport_type;  // ibv_transport_type
  uint32_t reserved;
  char profile[32];
};
// The devices of the host that answers; Nothing does as well. Where hosts live inside the program,
// that is the one that the caller is on, or the one that has or had the device `index`.
struct ListDevicesIn {
  uint32_t index;
  uint32_t of_index;  // 1: `index` is meant
};
struct ListDevicesOut {
  uint32_t count;
  uint32_t reserved;
  DeviceEntry devices[kMaxDevices];
};

// Descriptors: the asynchronous event counter.
struct OpenDeviceIn {
  uint32_t index;
  uint32_t reserved;
};
// What a device does not have, so that posting and the extended calls refuse it at once.
inline constexpr uint32_t kMissingImmediateData = 1;
inline constexpr uint32_t kMissingExtendedCalls = 2;  // ibv_create_cq_ex, send_ops_flags
inline constexpr uint32_t kMissingAtomics = 4;
inline constexpr uint32_t kMissingWindows = 8;
inline constexpr uint32_t kMissingReceivesInReset = 16;  // ibv_post_recv in RESET
struct OpenDeviceOut {
  uint32_t context;
  uint32_t completion_vectors;
  uint32_t max_inline_bytes;
  uint32_t missing;        // kMissing*
  uint32_t max_read_sges;  // max_sge_rd
  uint32_t reserved;
};
// `context`, here and below, is the open device that the call is made through, as the kernel's
// calls are made through its descriptor: handles of other contexts are ENOENT. 0: whichever the
// object is of.
struct HandleIn {  // close, dealloc, dereg, destroy, query by handle
  uint32_t handle;
  uint32_t context;
};
struct QueryDeviceOut {
  ibv_device_attr_ex attr;
};
struct QueryPortIn {
  uint32_t context;
  uint32_t port;
};
struct QueryPortOut {
  ibv_port_attr attr;
};
struct QueryGidsIn {
  uint32_t context;
  uint32_t port;
  uint32_t first;  // table index
  uint32_t count;  // at most kMaxGidsPerCall
};
struct QueryGidsOut {  // entries that are empty have gid_type 0 and a zero GID
  uint32_t count;
  uint32_t reserved;
  ibv_gid_entry entries[kMaxGidsPerCall];
};
struct QueryPkeyIn {
  uint32_t context;
  uint32_t port;
  int32_t index;
  uint32_t reserved;
};
struct QueryPkeyOut {
  uint16_t pkey_be;
  uint16_t reserved[3];
};
// kNothingQueued when no event is pending.
struct GetAsyncEventOut {
  int32_t type;  // ibv_event_type
  uint32_t reserved;
  uint64_t cookie;  // of the CQ, QP, SRQ; or the port's number
};

// What `rdmaemu device|port|address` do to a host that runs. Needs no Hello, like kHostStop.
enum class DeviceChange : uint32_t {
  kRemoveDevice = 1,
  // `profile` names a built-in one, or is empty: for a device that was removed, or where the TOML
  // of a profile follows ChangeDeviceIn, at most kMaxProfileBytes of it.
  kAddDevice,
  kPortDown,
  kPortUp,
  kAddAddress,
  kRemoveAddress,  // from whatever device has it
  kMoveAddress,    // to the device that is named
  kSetPkey,        // entry pkey_index of its P_Key table becomes pkey
};
struct ChangeDeviceIn {
  uint32_t change;  // DeviceChange
  uint32_t on_wire;
  char device[64];
  char profile[32];
  uint8_t address[16];  // as a GID
  uint32_t link_mtu_bytes;
  uint32_t interface_index;
  uint32_t pkey_index;
  uint32_t pkey;         // 16 bits
  uint32_t prefix_bits;  // of an added address's network, of 128; 0: HostAddress says which
  uint32_t reserved;
};

// ---- memory

struct AllocPdIn {
  uint32_t context;
  uint32_t reserved;
};
struct HandleOut {
  uint32_t handle;
  uint32_t reserved;
};
struct RegMrIn {
  uint32_t pd;
  int32_t access;
  uint64_t address;
  uint64_t length;
  uint64_t iova;
  RegionPages pages = RegionPages::kUnknown;
  uint32_t context = 0;
};
struct MrOut {
  uint32_t handle;
  uint32_t lkey, rkey;
  uint32_t reserved;
};
struct ReregMrIn {
  uint32_t handle;
  uint32_t flags;  // IBV_REREG_MR_*
  uint32_t pd;
  int32_t access;
  uint64_t address;
  uint64_t length;
  uint32_t context = 0;
  uint32_t reserved = 0;
};
struct AllocMwIn {
  uint32_t pd;
  int32_t type;  // ibv_mw_type
  uint32_t context = 0;
  uint32_t reserved = 0;
};
struct MwOut {
  uint32_t handle;
  uint32_t rkey;
};

// ---- completion

// Descriptors: the channel's counter.
struct CreateChannelOut {
  uint32_t handle;
  uint32_t slots;   // of the ring of ChannelEntry
  SharedSpan ring;  // Ring with 8-byte slots
};
struct TakeChannelOverflowOut {  // kNothingQueued when there is none
  uint64_t cq_cookie;
};
struct CreateCqIn {
  uint32_t context;
  uint32_t channel;  // 0: none
  uint32_t entries;
  uint32_t completion_vector;
  uint64_t cookie;
};
struct CqOut {
  uint32_t handle;
  uint32_t entries;  // what the program may count on
  uint32_t slots;
  uint32_t reserved;
  SharedSpan queue;  // CqControl, then Ring with 64-byte slots (CqEntry)
};
struct ResizeCqIn {
  uint32_t handle;
  uint32_t entries;
  uint32_t context = 0;
  uint32_t reserved = 0;
};
struct DestroyCqOut {
  uint32_t async_events_reported;  // fetched by the program; ibv_destroy_cq waits for their acks
  uint32_t reserved;
};

// ---- queues

struct CreateSrqIn {
  uint32_t pd;
  uint32_t max_wr;
  uint32_t max_sge;
  uint32_t limit;
  uint64_t cookie;
  uint32_t context = 0;
  uint32_t reserved = 0;
};
struct SrqOut {
  uint32_t handle;
  uint32_t srq_number;
  uint32_t max_wr, max_sge;
  uint32_t slots, slot_bytes;
  uint32_t entries;  // receives that the queue takes; its ring may have more room
  uint32_t reserved;
  SharedSpan queue;  // Ring (rxe_recv_wqe)
};
struct ModifySrqIn {
  uint32_t handle;
  int32_t mask;  // IBV_SRQ_MAX_WR, IBV_SRQ_LIMIT
  uint32_t max_wr;
  uint32_t limit;
  uint32_t context = 0;
  uint32_t reserved = 0;
};
struct QuerySrqOut {
  ibv_srq_attr attr;
};
struct DestroyOut {
  uint32_t async_events_reported;
  uint32_t reserved;
};
struct CreateQpIn {
  uint32_t pd;
  uint32_t send_cq, recv_cq;
  uint32_t srq;  // 0: none
  int32_t type;  // ibv_qp_type
  uint32_t signal_all;
  ibv_qp_cap cap;
  uint32_t context;
  uint64_t cookie;
};
struct CreateQpOut {
  uint32_t handle;
  uint32_t qpn;
  uint32_t doorbell;      // slot in the DoorbellPage
  uint32_t send_entries;  // requests that the send queue takes; its ring may have more room
  ibv_qp_cap cap;
  uint32_t send_slots, send_slot_bytes;
  uint32_t recv_slots, recv_slot_bytes;
  uint32_t recv_entries;
  SharedSpan send_queue;  // QpControl, then Ring (rxe_send_wqe)
  SharedSpan recv_queue;  // Ring (rxe_recv_wqe); length 0 with an SRQ
};
struct ModifyQpIn {
  uint32_t handle;
  int32_t mask;  // IBV_QP_*
  ibv_qp_attr attr;
  uint32_t context = 0;
  uint32_t reserved = 0;
};
struct QueryQpOut {
  ibv_qp_attr attr;
  ibv_qp_cap cap;
  uint32_t signal_all;
};
struct CreateAhIn {
  uint32_t pd;
  uint32_t context;
  ibv_ah_attr attr;
};
struct McastIn {
  uint32_t qp;
  uint16_t lid;
  uint16_t reserved;
  ibv_gid gid;
  uint32_t context = 0;
  uint32_t reserved2 = 0;
};

// ---- posting and polling

// These go through shared memory and make no call. Where a fault rule stands at one of them
// (DoorbellPage::watched_calls has its bit), the program asks before it does it: an error is what
// it answers instead.
struct AskIn {
  uint32_t handle;  // of the QP, SRQ or CQ
  uint32_t again;   // 0; or what AskOut said: it has been done, and waits
};
struct AskOut {
  int32_t error;   // positive errno: it is done, and answers this all the same
  uint32_t again;  // not 0: it is done, then asked about once more with this, and waited for
};
constexpr bool IsAsked(CallOp op) { return op >= CallOp::kPostSend && op <= CallOp::kReqNotifyCq; }
static_assert(static_cast<size_t>(CallOp::kReqNotifyCq) == std::size(kCallTable));
constexpr uint32_t WatchBit(CallOp op) {
  return 1u << (static_cast<uint32_t>(op) - static_cast<uint32_t>(CallOp::kPostSend));
}

// ---- connection management

// Nothing does as well, and 0. Where hosts live inside the program, the new channel is on the host
// of this one; otherwise on that which the caller is on.
struct CmCreateChannelIn {
  uint32_t beside;  // a channel
  uint32_t reserved;
};
// Descriptors: the channel's event counter.
struct CmChannelOut {
  uint32_t channel;
  uint32_t reserved;
};
// A command of rdma_user_cm.h. `response` members are not used; MIGRATE_ID's `fd` is the handle of
// the new channel (the call goes to the id's old one); QUERY_PATH and SET_OPTION have the structs
// of command_structs.h.
template <class Command>
struct CmCall {
  uint32_t channel;
  uint32_t reserved;
  Command command;
};
static_assert(std::size(kCmCommandTable) == kCmCommandWriteEvent + 1);
static_assert(sizeof(ibv_qp_attr) % 8 == 0 && std::is_trivially_copyable_v<ibv_qp_attr>);

}  // namespace rdmaemu
