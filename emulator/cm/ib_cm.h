// The IB CM protocol (IBTA 12) as in the kernel's cm.c, with retransmission, duplicates, MRA and
// stale connections. One Connection is one exchange, from REQ or SIDR_REQ to the end of timewait.
// The protocol does not use RDMA CM ids. It notifies their owner through IbCmUser.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulator/base/random.h"
#include "emulator/base/result.h"
#include "emulator/base/time.h"
#include "emulator/base/timer_queue.h"
#include "emulator/cm/cm.h"
#include "emulator/wire/cm_message.h"

namespace rdmaemu::cm {

// Reject reasons (ib_cm_rej_reason) that the CM itself sends.
enum class RejectReason : uint16_t {
  kTimeout = 4,
  kInvalidServiceId = 8,
  kStaleConnection = 10,
  kInvalidGid = 12,
  kInvalidAlternateGid = 18,
  kConsumer = 28,
  kVendorOption = 35,
};
enum class SidrStatus : uint8_t { kSuccess = 0, kUnsupported = 1, kReject = 2 };

enum class IbCmState : uint8_t {
  kIdle,  // over; the connection is removed when its owner destroys it
  kReqSent,
  kMraReqReceived,
  kReqReceived,
  kMraReqSent,  // as in the kernel: the REQ waits for the application, an MRA answers repeats
  kRepSent,
  kMraRepReceived,
  kRepReceived,
  kMraRepSent,
  kEstablished,
  kDreqSent,
  kDreqReceived,
  kTimewait,
  kSidrReqSent,
  kSidrReqReceived,
};

enum class IbCmEventType : uint8_t {
  kReqError,     // no answer arrived
  kMraReceived,  // the peer's application has the REQ
  kRepError,
  kRepReceived,
  kRtuReceived,
  kUserEstablished,
  kDreqReceived,
  kDreqError,
  kDrepReceived,
  kRejReceived,
  kTimewaitExit,
  kSidrReqError,
  kSidrRepReceived,
};

// The local end. A connection needs these values of its device and path after the device was
// removed.
struct LocalPort {
  uint64_t node_guid_be = 0;
  uint8_t ack_delay = 0;
  CmProfile profile = {};
};

struct Connection {
  uint64_t key = 0;    // never reused
  uint32_t owner = 0;  // id handle; 0: no owner, only the protocol continues to its end
  IbCmState state = IbCmState::kIdle;
  uint32_t local_id = 0, remote_id = 0;
  uint64_t transaction_id = 0;
  uint64_t service_id = 0;
  LocalPort local;
  CmRoute route;
  // Exponent of the QP's timeout, of timewait and of the time that an MRA adds. Until the REP
  // reports the peer's ack delay, the active side has only its path's lifetime here (the kernel's
  // av.timeout).
  uint8_t ack_timeout = 0;
  uint32_t flow_label = 0;
  uint8_t hop_limit = 64;
  wire::CmTransport transport = wire::CmTransport::kRc;
  uint32_t local_qpn = 0, remote_qpn = 0;
  uint32_t rq_psn = 0, sq_psn = 0;
  uint8_t responder_resources = 0, initiator_depth = 0;
  uint8_t retry_count = 0, rnr_retry_count = 0;
  uint8_t path_mtu = 0;
  uint16_t pkey_index = 0;  // of its path (the kernel's av.pkey_index)

  // The message that is retransmitted until it is answered.
  std::optional<wire::CmMessage> outstanding;
  Duration response_timeout{}, repeat_after{};
  std::optional<Time> give_up_at;  // ends a REQ despite repeats and MRAs
  Duration reply_after_mra{};      // see ConnectParameters
  uint8_t max_retries = 0, retries_left = 0;
  int send_error = ETIMEDOUT;  // reported to the owner when no answer arrives
  Time held_until{};           // the peer repeats the unanswered message until this time

  // Entries in the tables of remote ends, while they exist.
  std::optional<std::pair<uint64_t, uint32_t>> remote_id_key, remote_qpn_key;
  std::optional<std::pair<NetAddress, uint32_t>> sidr_key;
};

enum class RequestVerdict : uint8_t {
  kTaken,
  kDropped,  // no answer: the peer repeats the message and may succeed then
  kRefused,  // REJ 28, or SIDR_REP with status 2
};

// The owner's immediate answer to a REP (kYes: RTU, kNo: REJ) or a DREQ (kYes: DREP). With kLater
// the owner answers by a later call.
enum class EventAnswer : uint8_t { kLater, kYes, kNo };

// The owner of the connections. None of its functions calls back into IbCm.
class IbCmUser {
 public:
  virtual ~IbCmUser() = default;
  virtual bool Listens(const CmDevice& device, uint64_t service_id) = 0;
  // Handles a REQ or SIDR_REQ for a service id with a listener. Sets `connection.owner` when it
  // returns kTaken.
  virtual RequestVerdict Request(Time now, Connection& connection, const CmDevice& device,
                                 const wire::CmMessage& message) = 0;
  // Handles an event of a connection with an owner. `message` caused the event, nullptr when no
  // message did.
  virtual EventAnswer Event(Time now, const Connection& connection, IbCmEventType type,
                            const wire::CmMessage* message) = 0;
};

struct ConnectParameters {
  uint32_t owner;
  LocalPort local;
  CmRoute route;
  wire::CmReq req;  // SendReq fills in comm id, GUID, timeouts and ack timeout
  uint8_t packet_lifetime;
  uint32_t ece_attr_mod = 0;
  std::vector<uint8_t> more_private_data = {};
  Duration give_up_after{};  // despite repeats; zero: when the repeats end
  // Limits the time from an MRA to the reply. On iWARP the MRA replaces TCP's answer to the REQ.
  // When this value is zero, give_up_after limits the reply.
  Duration reply_after_mra{};
};
struct SidrParameters {
  uint32_t owner;
  LocalPort local;
  CmRoute route;
  wire::CmSidrReq req;  // SendSidrReq fills in the request id
  uint32_t flow_label = 0;
};

class IbCm {
 public:
  static constexpr size_t kMaxConnections = 262144;
  static constexpr size_t kMaxTimewaitEntries = 65536;  // without an owner; drops the oldest

  IbCm(const CmEnvironment& environment, Random& random, trace::Sink& trace, IbCmUser& user)
      : addresses_(environment.addresses),
        transport_(environment.transport),
        random_(random),
        trace_(trace),
        user_(user) {}

  Connection* Find(uint64_t key);
  // Returns ENOMEM when there are kMaxConnections connections.
  Result<uint64_t> SendReq(Time now, const ConnectParameters& parameters);
  Result<uint64_t> SendSidrReq(Time now, const SidrParameters& parameters);
  // Fills in ids, GUID and ack delay. This and the next functions return EINVAL in a state where
  // the message cannot be sent.
  Status SendRep(Time now, Connection& connection, wire::CmRep rep, uint32_t ece_attr_mod,
                 std::vector<uint8_t> more_private_data = {});
  Status SendRtu(Time now, Connection& connection);
  Status SendRej(Time now, Connection& connection, RejectReason reason,
                 std::span<const uint8_t> additional_info, std::span<const uint8_t> private_data,
                 uint32_t attribute_modifier = 0, std::vector<uint8_t> more_private_data = {});
  // Withdraws a REQ that was sent. Notifies the peer, but not the local owner.
  void Withdraw(Time now, Connection& connection);
  Status SendDreq(Time now, Connection& connection);
  Status SendDrep(Time now, Connection& connection);
  Status SendSidrRep(Time now, Connection& connection, wire::CmSidrRep rep, uint32_t ece_attr_mod);
  // Handles data that arrived before the RTU. Returns EISCONN when the connection is established
  // already, EINVAL in other states.
  Status Establish(Time now, Connection& connection);
  // Ends the owner's use of a connection (ib_destroy_cm_id). Sends the peer the message that the
  // state requires. An established connection remains until its DREQ is answered or its retries
  // end, and through timewait.
  void Destroy(Time now, uint64_t key);

  void Receive(Time now, const CmRoute& route, const CmDevice& device,
               const wire::CmMessage& message);
  // Handles ICMP port unreachable: no program listens at the peer's address. Ends requests that
  // wait for TCP's answer. The IB CM ignores the ICMP message, as the kernel does.
  void Refused(Time now, const NetAddress& local, const NetAddress& remote);
  void Expire(Time now);
  std::optional<Time> NextDeadline() const { return timers_.Next(); }
  // Returns true while a peer's deadline runs against an application of this host. The deadline
  // runs while the application has not answered a REQ or SIDR_REQ. For a REP or DREQ, the deadline
  // ends when the peer stops retransmitting.
  bool AwaitsApplication(Time now) const;

  size_t connections() const { return connections_.size(); }
  // As Cm::Connections.
  std::vector<const Connection*> All() const;
  CmStatistics& statistics() { return statistics_; }
  const CmStatistics& statistics() const { return statistics_; }

 private:
  Connection* Create();
  void Forget(Connection& connection);
  // Returns an error when the message could not be sent, so that no answer can arrive.
  Status Send(Time now, const CmRoute& route, uint32_t owner, const wire::CmMessage& message);
  void SendOutstanding(Time now, Connection& connection);
  void GiveUpNow(Time now, Connection& connection, int error);
  void SendOn(Time now, const Connection& connection, wire::CmBody body);
  void SendUntilAnswered(Time now, Connection& connection, wire::CmMessage message,
                         IbCmState state);
  void SendMra(Time now, const Connection& connection, wire::CmMessageType message);
  void ArmRepeat(Time now, Connection& connection);
  void StopRepeating(Connection& connection);
  void GiveToApplication(Time now, Connection& connection, IbCmState state);
  void EnterTimewait(Time now, Connection& connection);
  void BoundOwnerlessTimewait(Connection& connection);
  void HurryDreq(Time now, Connection& connection);
  void ResetToIdle(Connection& connection);
  bool InsertRemoteId(Connection& connection, uint64_t guid, uint32_t remote_id);
  bool InsertRemoteQpn(Connection& connection, uint64_t guid, uint32_t qpn);
  void RemoveRemote(Connection& connection);
  void TellOwner(Time now, Connection& connection, IbCmEventType type,
                 const wire::CmMessage* message);
  void DropIfOver(Connection& connection);
  // Finds a connection by the local id (cm_acquire_id). The peer's id must match the connection's
  // remote id. The remote id is 0 while the peer's id is unknown.
  Connection* Acquire(uint32_t local_id, uint32_t remote_id);
  Connection* FindRejected(const wire::CmRej& rej);
  // Sends a REJ for a REQ or REP without a connection here (cm_issue_rej).
  void IssueRej(Time now, const CmRoute& received, const wire::CmMessage& message,
                RejectReason reason);
  void EndStale(Time now, uint64_t key);
  wire::CmRej MakeRej(const Connection& connection, RejectReason reason) const;
  bool CanAnswer(const CmRoute& received);
  bool AddressesAreValid(Time now, Connection& connection, const CmDevice& device,
                         const wire::CmReq& req);
  void TakeRequest(const wire::CmReq& req, const CmDevice& device, Connection& connection);
  void Trace(Time now, std::string_view kind, uint32_t owner, const wire::CmMessage& message);
  uint32_t OwnerOf(const wire::CmMessage& message);
  void RetransmitOrGiveUp(Time now, Connection& connection);

  void OnReq(Time now, const CmRoute& route, const CmDevice& device, const wire::CmMessage& message,
             const wire::CmReq& req);
  void OnDuplicateReq(Time now, uint64_t key);
  void OnMra(Time now, const wire::CmMra& mra);
  void OnRej(Time now, const wire::CmMessage& message, const wire::CmRej& rej);
  void OnRep(Time now, const CmRoute& route, const wire::CmMessage& message,
             const wire::CmRep& rep);
  void OnDuplicateRep(Time now, const wire::CmRep& rep);
  void OnRtu(Time now, const wire::CmMessage& message, const wire::CmRtu& rtu);
  void OnDreq(Time now, const CmRoute& route, const wire::CmMessage& message,
              const wire::CmDreq& dreq);
  void OnDrep(Time now, const wire::CmMessage& message, const wire::CmDrep& drep);
  void OnSidrReq(Time now, const CmRoute& route, const CmDevice& device,
                 const wire::CmMessage& message, const wire::CmSidrReq& req);
  void OnSidrRep(Time now, const wire::CmMessage& message, const wire::CmSidrRep& rep);

  CmAddresses& addresses_;
  CmTransport& transport_;
  Random& random_;
  trace::Sink& trace_;
  IbCmUser& user_;
  CmStatistics statistics_;
  uint64_t last_key_ = 0;
  // Tens of thousands of connections can be in timewait. Their order in this table means nothing.
  std::unordered_map<uint64_t, Connection> connections_;
  // Points into `connections_`. Looked up, never iterated.
  std::unordered_map<uint32_t, Connection*> by_local_id_;
  std::map<std::pair<uint64_t, uint32_t>, uint64_t> by_remote_id_;   // (CA GUID, communication id)
  std::map<std::pair<uint64_t, uint32_t>, uint64_t> by_remote_qpn_;  // (CA GUID, QPN)
  std::map<std::pair<NetAddress, uint32_t>, uint64_t> by_sidr_;      // (peer, request id)
  std::deque<uint64_t> ownerless_timewait_;  // oldest first; may name ended connections
  TimerQueue<uint64_t> timers_;
};

// Returns the exponent of a QP's timeout from a packet lifetime and an ack delay (cm_ack_timeout).
uint8_t AckTimeoutExponent(uint8_t ack_delay, uint8_t packet_lifetime);
// Returns the IP address of a GID.
NetAddress AddressOfGid(const NetAddress& gid);

}  // namespace rdmaemu::cm
