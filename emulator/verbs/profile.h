// A device profile: every number and habit in which kinds of devices differ. Profiles are TOML data
// (emulator/verbs/profiles/*.toml), which the host parses once. The code contains no constants of a
// device.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "emulator/base/newer_verbs.h"
#include "emulator/base/result.h"
#include "emulator/base/time.h"

namespace rdmaemu {

struct TransportProfile {
  uint32_t ack_every_packets;     // most packets per request for an ACK (RXE_MAX_PKT_PER_ACK)
  uint32_t max_unacked_packets;   // a sender's first window on the wire (RXE_MAX_UNACKED_PSNS)
  bool retry_count_7_is_endless;  // rxe: measured
  uint32_t lowest_qpn;
};

// The kernel's connection manager of a device's ids. The manager decides the steps of a connection
// and of its queue pairs, and which events with which status the programs get.
enum class ConnectionManager : uint8_t {
  kIb,     // ib_cm: the library moves the QP, and a REP waits for that
  kIwarp,  // iw_cm: the device moves the QP; the QP and its connection end together
};

struct CmProfile {
  uint8_t response_timeout;     // exponent (20: 4096 ms)
  uint8_t max_retries;          // 15
  uint8_t packet_lifetime;      // exponent, RoCE (18 or 16)
  uint8_t mra_service_timeout;  // exponent (24)
  Duration timewait_floor;      // shortest timewait
  uint32_t max_backlog;         // 1024
  uint32_t ud_qkey;             // 0x01234567
  ConnectionManager manager = ConnectionManager::kIb;
  // For kIwarp only.
  Duration connect_timeout{};  // time to find out whether a peer on another host listens
  Duration reply_timeout{};    // from a connect to its accept; zero: while the peer repeats it
  uint8_t max_reply_private_data = 0;  // bytes of private data in an accept
};

// How a device rounds up a queue's depth, and which depth it reports.
enum class QueueDepths : uint8_t {
  kRing,        // 2^n - 1, the capacity of a ring of 2^n slots
  kPowerOfTwo,  // 2^n; SGEs and inline data as requested
};

// `vendor_err` of failed completions, by their status. 0: none, as rxe.
struct VendorErrors {
  uint8_t local_length = 0;
  uint8_t local_operation = 0;
  uint8_t local_protection = 0;    // of a send
  uint8_t receive_protection = 0;  // LOC_PROT_ERR of a receive
  uint8_t flush = 0;
  uint8_t bind = 0;
  uint8_t remote_invalid = 0;
  uint8_t remote_access = 0;
  uint8_t remote_operation = 0;
  uint8_t retry_exceeded = 0;
  uint8_t rnr_exceeded = 0;

  uint8_t Of(ibv_wc_status status, bool of_send) const;
};

struct Profile {
  std::string name;
  ibv_device_attr_ex device;    // limits; GUIDs are filled in per device
  ibv_port_attr port;           // state and active_mtu are filled in per device
  std::vector<uint16_t> pkeys;  // initial P_Key table, port.pkey_tbl_len entries
  ibv_node_type node_type;
  std::string node_desc;      // the file node_desc of sysfs
  std::string device_prefix;  // with 0: the name of the device that --profile makes
  ibv_transport_type transport;
  uint32_t max_inline_bytes;
  uint32_t completion_vectors;
  TransportProfile rc;
  CmProfile cm;
  bool flush_receives_posted_in_error;  // hardware: yes; rxe: no
  bool ud_qkey_may_be_own = false;      // the highest bit selects the QP's own Q_Key; rxe: no
  bool raises_qp_fatal;                 // IBV_EVENT_QP_FATAL and similar events; rxe: no
  // QP events as siw raises them. Local errors that a completion reports raise an event, too.
  // Refused READs raise QP_REQ_ERR. WRITEs with an unknown key raise no event. Needs
  // raises_qp_fatal.
  bool raises_rnic_events = false;
  bool keeps_failed_opcodes = false;  // a failed completion has its opcode; rxe: 0
  bool raises_last_wqe_reached;
  bool raises_comm_est;
  bool reregisters_regions;  // ibv_rereg_mr; rxe: no
  bool serves_uc, serves_ud;
  bool serves_immediate_data;
  bool serves_extended_calls;      // ibv_create_cq_ex; ibv_create_qp_ex with send_ops_flags
  bool serves_srq_queries = true;  // ibv_query_srq, and IBV_SRQ_MAX_WR of ibv_modify_srq
  bool checks_srq_limit = false;   // a limit above the depth of a new SRQ is EINVAL; rxe: no
  bool resizes_cqs;
  bool allows_empty_queues;  // a QP whose send or receive depth is 0
  bool reports_qp_state;     // ibv_query_qp returns the state and the attributes of ibv_modify_qp
  bool has_ip_gids;          // the GID table has the addresses (RoCE); else one GID of the MAC
  bool marks_grh;            // IBV_WC_GRH in completions of connected receives
  // True: a SEND or WRITE that the peer refuses completes with an error. False: it succeeds when it
  // was sent, as over TCP, and the connection ends.
  bool tells_remote_errors;
  bool tells_receive_errors_apart;  // LOC_LEN_ERR, GENERAL_ERR; else always LOC_QP_OP_ERR
  bool tells_gather_errors_apart;   // LOC_PROT_ERR beyond a region; else LOC_QP_OP_ERR for all
  QueueDepths queue_depths;
  // Removal of the device flushes its QPs, and raises IBV_EVENT_DEVICE_FATAL on its contexts. rxe
  // does neither (measured).
  bool removal_flushes;
  bool raises_device_fatal;
  // True: a send without a route fails at once with LOC_QP_OP_ERR (measured on rxe). False: the
  // send is lost and exhausts its retries.
  bool fails_sends_without_link;
  // ibv_modify_qp refuses a pkey_index beyond the table (mlx5_ib_modify_qp). rxe does not.
  bool checks_pkey_index;
  // ibv_modify_qp refuses a max_dest_rd_atomic above max_qp_rd_atom (mlx5_ib_modify_qp). rxe does
  // not (rxe_qp_chk_attr).
  bool checks_responder_depth;
  // A send longer than max_msg_sz fails with LOC_LEN_ERR, and a longer request gets a NAK. rxe and
  // siw only report the limit (rxe_init_port_param, siw_query_port).
  bool enforces_max_msg_sz;
  // ibv_post_recv in RESET is EINVAL (rxe_post_recv of rdma-core).
  bool refuses_receives_in_reset;
  // A region of length 0 can be registered when its address is not at the beginning of a page.
  // ib_umem_get counts the page (rxe), siw_umem_get refuses the length.
  bool registers_empty_regions;

  // wc.sl of a UD receive has the kind of its packet.
  bool reports_packet_kind = false;

  // Regions and local keys. rxe has none of these habits.
  bool always_has_rkey = false;           // rkey = lkey, also without remote rights
  bool tells_key_errors = false;          // LOC_PROT_ERR for every local key that fails its check
  bool refuses_long_sends = false;        // REM_INV_REQ_ERR at the sender; rxe: REM_OP_ERR
  bool bound_regions_are_busy = false;    // ibv_dereg_mr: EBUSY; rxe: EINVAL
  bool sets_rkey_at_bind = false;         // a posted BIND of a type 2 window sets ibv_mw::rkey
  bool binds_zero_based_regions = false;  // regions with IBV_ACCESS_ZERO_BASED; rxe: refused
  bool checks_srq_pd = false;             // lkeys of an SRQ's receives; rxe: the PD of the QP
  // Posting. rxe refuses both with EINVAL.
  bool completes_misaligned_atomics = false;
  bool accepts_early_sends = false;   // before RTS
  bool fails_long_datagrams = false;  // LOC_LEN_ERR above the MTU; rxe drops them silently

  // RESET and ibv_destroy_qp remove the QP's entries from its CQs; rxe: they stay.
  bool purges_completions = false;

  // rdma_rxe of Linux 6.12. rxe of 6.1 has none of these habits.
  bool refuses_long_requests = false;  // a READ or WRITE above max_msg_sz gets a NAK
  bool refuses_unused_access = false;  // IBV_ACCESS_ZERO_BASED, HUGETLB and ON_DEMAND
  bool drops_long_datagrams = false;   // longer than the receive; 6.1: LOC_QP_OP_ERR and ERR
  bool reports_current_state = false;  // ibv_query_qp sets cur_qp_state; 6.1: always 0
  bool reports_srq_depth = false;      // ibv_create_srq returns the depth that it granted

  // Regions may have IBV_ACCESS_FLUSH_PERSISTENT. Without persistent memory that is EINVAL.
  bool has_persistent_memory = false;

  VendorErrors vendor_errors;

  // ibv_create_qp_ex accepts IBV_QP_EX_WITH_ATOMIC_WRITE although the device lacks the operation.
  // The request then completes with LOC_QP_OP_ERR (measured: rdma-core 44 on rxe of Linux 6.1).
  bool builds_atomic_writes = false;

  // Optional operations, as the device's capability flags say.
  bool serves_atomic_writes() const {
    return (device.device_cap_flags_ex & kDeviceCapAtomicWrite) != 0;
  }
  // The rights to flush that a region may have.
  int flush_access() const {
    const uint64_t flags = device.device_cap_flags_ex;
    return ((flags & kDeviceCapFlushGlobal) != 0 ? kAccessFlushGlobal : 0) |
           ((flags & kDeviceCapFlushPersistent) != 0 ? kAccessFlushPersistent : 0);
  }
  bool serves_flushes() const { return flush_access() != 0; }

  // The longest message that the transports move, in bytes.
  uint32_t most_message_bytes() const { return enforces_max_msg_sz ? port.max_msg_sz : UINT32_MAX; }
  // The longest READ or WRITE that a responder accepts, in bytes.
  uint32_t most_request_bytes() const {
    return enforces_max_msg_sz || refuses_long_requests ? port.max_msg_sz : UINT32_MAX;
  }
};

// Limits hca_core_clock, in kHz.
inline constexpr int64_t kMostClockKhz = 4'000'000;

// Limits a profile's TOML, so that a profile fits into the call that sends it to a host.
inline constexpr size_t kMaxProfileBytes = 12288;

// Limits the bases of a profile: its base, the base of that, and so on.
inline constexpr size_t kMaxProfileBases = 8;

struct ProfileText {
  std::string file;  // for messages, and to detect a chain of bases that contains itself
  std::string toml;
};
// Finds the text of the profile that the profile in `file` names as its base. The error text says
// which name to use instead.
using FindProfileText = std::function<tl::expected<ProfileText, std::string>(
    const std::string& base, const std::string& file)>;

// Finds the text of a built-in profile by its name.
tl::expected<ProfileText, std::string> BuiltInProfileText(const std::string& name);

// Parses a profile's TOML. The profile has the keys of its base, except those that it has itself. A
// profile without a base has all keys. Without `find_base`, bases are built-in profiles. The error
// contains file, line, column and the expected value.
tl::expected<Profile, std::string> ParseProfile(std::string_view toml, std::string_view file_name,
                                                const FindProfileText& find_base = nullptr);
// Returns the TOML of a profile without a base that is equal to `profile`.
std::string ProfileToml(const Profile& profile);
// Returns the built-in profile of that name, nullptr when there is none.
const Profile* BuiltInProfile(std::string_view name);
// Returns the names of the built-in profiles for messages: "rxe, ...".
std::string BuiltInProfileNames();

}  // namespace rdmaemu
