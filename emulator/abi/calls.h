// The calls from a program to its host: one struct of fixed layout in, one out. Over a
// SOCK_SEQPACKET socket, a call is CallHeader and In. The reply is ReplyHeader and Out, for some
// calls with file descriptors. An embedded host receives the same bytes by a function call. Verbs
// calls contain the structs of verbs.h. Calls of connection management contain those of
// rdma_user_cm.h.
//
// The host replies to all calls at once. The program's library does all waiting for events and
// acknowledgements.
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

// Changes when any layout in this file changes. A host answers another version with EPROTO.
inline constexpr uint32_t kCallVersion = 26;
inline constexpr size_t kMaxCallBytes = 16384;
inline constexpr size_t kMaxReplyBytes = 131072;  // only HostStatus needs nearly as much
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
  uint32_t descriptors;  // number of SCM_RIGHTS descriptors, in the order that the call names
  uint32_t reserved;
};

struct Nothing {
  uint64_t reserved = 0;
};

// ---- the connection

// The first call on a connection. A forked child opens its own connection and sends its parent's
// group token. The child can then use the handles of objects that the parent created before the
// fork. Descriptors: doorbell eventfd.
struct HelloIn {
  uint32_t version;         // kCallVersion
  uint32_t pid;             // as the program sees it; the host trusts SO_PEERCRED, not this
  uint8_t group_token[16];  // zero: a new group
  uint32_t parent;          // HelloOut::process of the parent; ignored for a new group
  uint32_t fork;            // number of the parent's fork that created this process, from 1
  char program[64];         // for the trace and `rdmaemu hosts`
};
struct HelloOut {
  uint32_t version;
  uint32_t host_pid;  // for PR_SET_PTRACER
  uint32_t process;   // ProcessId
  uint32_t group;
  uint8_t group_token[16];
  SharedSpan doorbells;     // a DoorbellPage
  SharedSpan process_page;  // a ProcessPage (process_page.h)
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

// kShareCallPage returns the pages for calls without the socket (call_page.h). The call has no In
// and no Out, and must follow a Hello. Descriptors: the memfd of a CallPageSet. Only the socket's
// server serves this call.

// kShareBuffers makes the process's arena for ibv_alloc_buf (buffer_arena.h), which must not exist
// yet (EALREADY). It has no Out, and needs a Hello before. Descriptors: the arena's memfd. Only the
// socket's server answers it.
struct ShareBuffersIn {
  uint64_t address;  // at which the process maps the arena
};

// kSequence contains other calls (sequence.h).

// The calls of `rdmaemu fault` for the rules of a running host
// (emulator/host/faults/host_faults.h). In: a rule's text (kFaultAdd), a rule's name (kFaultRemove,
// kFaultRelease), or nothing. Out: JSON text. {"error": TEXT} means that the host refuses.
inline constexpr size_t kMaxFaultTextBytes = 8192;
// kFaultWait: a FaultWaitIn, then a rule's name. The host replies when the rule has fired `times`
// times since the rule was added: {"name": NAME, "matched": N, "fired": N}. The reply is immediate
// when the rule has already fired so often. The reply is {"error": TEXT} when there is no such
// rule, or when the rule is removed meanwhile. A program stops waiting by closing the connection.
struct FaultWaitIn {
  uint64_t times;
};

// The call of `rdmaemu clock`. The call needs no Hello. The socket's server serves it
// (runtime/clock.h). An embedded host returns EOPNOTSUPP. A clock that is not `manual` returns
// EOPNOTSUPP for kAdvance and kRunUntilIdle.
enum class ClockAction : uint32_t { kShow = 1, kAdvance, kRunUntilIdle };
struct ClockIn {
  uint32_t action;  // ClockAction
  uint32_t reserved;
  int64_t advance_ns;  // kAdvance: more than 0
};
struct ClockOut {
  char mode[24];  // as in --clock
  int64_t now_ns;
  uint32_t moving;  // 1: the clock is still advancing to the time of an earlier call
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
// Lists the devices of one host. In may also be Nothing. When several hosts are inside the program,
// the host of the device `index` replies, even after the device's removal. Without `index`, the
// host that the calling thread has entered replies.
struct ListDevicesIn {
  uint32_t index;
  uint32_t of_index;  // 1: `index` selects the host
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
// Features that a device does not have. The library refuses such work when a program posts it, and
// such an extended call when a program makes it.
inline constexpr uint32_t kMissingImmediateData = 1;
inline constexpr uint32_t kMissingExtendedCalls = 2;  // ibv_create_cq_ex, send_ops_flags
inline constexpr uint32_t kMissingAtomics = 4;
inline constexpr uint32_t kMissingWindows = 8;
inline constexpr uint32_t kMissingReceivesInReset = 16;    // ibv_post_recv in RESET
inline constexpr uint32_t kMissingMisalignedAtomics = 32;  // refused when they are posted
inline constexpr uint32_t kMissingEarlySends = 64;         // ibv_post_send before RTS
inline constexpr uint32_t kMissingAtomicWrites = 256;
inline constexpr uint32_t kMissingFlushes = 512;
inline constexpr uint32_t kMissingPurge = 128;        // of a QP's completions, at RESET and destroy
inline constexpr uint32_t kMissingRkeyAtBind = 1024;  // a posted BIND does not set ibv_mw::rkey
struct OpenDeviceOut {
  uint32_t context;
  uint32_t completion_vectors;
  uint32_t max_inline_bytes;
  uint32_t missing;        // kMissing*
  uint32_t max_read_sges;  // max_sge_rd
  uint32_t clock_khz;      // hca_core_clock; 0: completions have no timestamps for programs
  uint64_t clock_mask;     // completion_timestamp_mask
};
// `context`, here and below, is the open device through which the program calls. The kernel uses
// the device's file descriptor instead. A handle of another context is ENOENT. 0: the context of
// the object.
struct HandleIn {  // close, dealloc, dereg, destroy, query by handle
  uint32_t handle;
  uint32_t context;
};
struct QueryDeviceOut {
  ibv_device_attr_ex attr;
};
struct QueryClockOut {
  uint64_t now_ns;  // host time, as CqEntry::timestamp_ns
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
struct QueryGidsOut {  // empty entries have gid_type 0 and a zero GID
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
// The reply's error is kNothingQueued when no event is queued.
struct GetAsyncEventOut {
  int32_t type;  // ibv_event_type
  uint32_t reserved;
  uint64_t cookie;  // of the CQ, QP, SRQ; or the port's number
};

// The call of `rdmaemu device|port|address` to change a running host. Like kHostStop, the call
// needs no Hello.
enum class DeviceChange : uint32_t {
  kRemoveDevice = 1,
  // `profile` names a built-in profile, or is empty. `profile` is empty in two cases: the device
  // was removed before, or a profile's TOML follows ChangeDeviceIn (at most kMaxProfileBytes).
  kAddDevice,
  kPortDown,
  kPortUp,
  kAddAddress,
  kRemoveAddress,  // from the device that has it
  kMoveAddress,    // to the named device
  kSetPkey,        // sets entry pkey_index of the port's P_Key table to pkey
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
  uint32_t prefix_bits;  // bits of the network, of 128; 0: NetworkOf (verbs/device.h) chooses
  uint32_t reserved;
  char interface_name[16];  // empty: unknown
};

// Reads a file that a host shows under /sys and /dev, or one of its objects in /state
// (emulator/host/files). kReadFile needs no Hello. In: an absolute path that contains no link. Out:
// ReadFileOut, then the contents. These are a file's text or a link's target. For a directory they
// are one byte (FileKind) and a name with a NUL for each entry. ENOENT, ENOTDIR, ENAMETOOLONG.
enum class FileKind : uint8_t { kDirectory = 1, kText, kLink, kCharacterDevice };
struct ReadFileOut {
  uint32_t kind;          // FileKind
  uint32_t mode;          // permission bits
  uint32_t major, minor;  // of a character device
  uint32_t read_error;    // of a text file: an errno that read(2) returns, or 0
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
  SharedSpan ring;  // ChannelControl, then Ring with 8-byte slots (ChannelEntry)
};
struct TakeChannelOverflowOut {  // the error is kNothingQueued when no overflow is queued
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
  uint32_t entries;  // usable entries
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
// Raises the event of a request that the program executed itself, because its thread cannot.
struct RaiseCqIn {
  uint32_t handle;
  EventPart part;
};
// Brings the descriptor of a queue pair's lane (send_lane.h). kOpenLaneCounter brings that of the
// counter of the receiver's channel, for the sender (ENOENT: none). kRaiseLaneEvent raises this
// counter for a thread that cannot. kCloseSentLane makes the receiver's host take the messages, and
// raise the event, for a sender without the counter. kCloseLanes takes the messages of all lanes,
// so that their completions are in the rings.
struct OpenLaneIn {
  uint32_t handle;
  uint32_t receives;  // 1: the lane by which the queue pair receives; 0: by which it sends
};
struct OpenLaneOut {
  uint32_t lane;  // Permit::lane and LaneOffer::lane
  uint32_t reserved;
};
struct DestroyCqOut {
  uint32_t async_events_reported;  // events that the program got; ibv_destroy_cq awaits their acks
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
  SharedSpan send_queue;  // QpControl, then Ring (SendEntry)
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

// Posting and polling use shared memory and make no call. When a fault rule matches one of them
// (DoorbellPage::watched_calls has its bit), the program asks the host first. The program returns
// the reply's error instead of posting or polling.
struct AskIn {
  uint32_t handle;  // of the QP, SRQ or CQ
  uint32_t again;   // 0, or AskOut::again: the program has executed the post or poll, and waits
};
struct AskOut {
  int32_t error;   // positive errno: the program executes the post or poll, and returns this error
                   // anyway
  uint32_t again;  // not 0: the program executes it, then calls again with this number and waits
};
constexpr bool IsAsked(CallOp op) { return op >= CallOp::kPostSend && op <= CallOp::kReqNotifyCq; }
static_assert(static_cast<size_t>(CallOp::kReqNotifyCq) == std::size(kCallTable));
constexpr uint32_t WatchBit(CallOp op) {
  return 1u << (static_cast<uint32_t>(op) - static_cast<uint32_t>(CallOp::kPostSend));
}

// ---- connection management

// In may also be Nothing. When several hosts are inside the program, the new channel is on the host
// of `beside`. With 0, the channel is on the host that the calling thread has entered.
struct CmCreateChannelIn {
  uint32_t beside;  // a channel, or 0
  uint32_t reserved;
};
// Descriptors: the channel's event counter.
struct CmChannelOut {
  uint32_t channel;
  uint32_t reserved;
};
// A command of rdma_user_cm.h. `response` members are unused. MIGRATE_ID's `fd` is the handle of
// the new channel, and `channel` is the id's old one. QUERY_PATH and SET_OPTION have the structs of
// command_structs.h.
template <class Command>
struct CmCall {
  uint32_t channel;
  uint32_t reserved;
  Command command;
};
static_assert(std::size(kCmCommandTable) == kCmCommandWriteEvent + 1);
static_assert(sizeof(ibv_qp_attr) % 8 == 0 && std::is_trivially_copyable_v<ibv_qp_attr>);

}  // namespace rdmaemu
