// One side of a test. A Worker executes its verbs and connection management calls, with plain data
// in and out. A test is a script over two sides.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/contract/support/arena.h"
#include "tests/contract/support/environment.h"
#include "tests/contract/support/worker.h"

namespace rdma_contract {

inline constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
inline constexpr int kMaxPieces = 32;
inline constexpr int kPatience_ms = 30'000;  // for expected results
inline constexpr int kQuiet_ms = 300;        // for results that must not arrive

// Returns the device under test, nullptr when no device has that name.
ibv_context* OpenTestDevice();
// Returns the index of the GID of `address` in the table of port 1, -1 when the table lacks it.
int GidIndexOf(ibv_context* context, const std::string& address);

struct QpSpec {
  ibv_qp_type type = IBV_QPT_RC;
  uint32_t depth = 64;
  uint32_t pieces = 4;
  uint32_t inline_bytes = 0;
  int cqe = 256;
  int receive_cqe = 0;  // 0: the same as cqe
  int srq = -1;         // index, -1: none
  bool signal_all = false;
  bool one_cq = false;        // send and receive queue share one CQ
  bool sleeps = false;        // Poll blocks in ibv_get_cq_event, without a limit
  uint64_t extended_ops = 0;  // IBV_QP_EX_WITH_*: create by ibv_create_qp_ex
};

struct QpAddress {
  uint32_t qpn;
  uint32_t psn;
  ibv_gid gid;
  int gid_index;
  uint16_t lid = 0;  // not 0: paths to the QP have this LID and no GRH
};

struct PathSpec {
  ibv_mtu mtu = IBV_MTU_1024;
  uint8_t timeout = 14;
  uint8_t retry = 7;
  uint8_t rnr_retry = 7;
  uint8_t min_rnr_timer = 1;
  uint8_t reads = 16;
  int access = kAllAccess;
  uint32_t qkey = 0x11111111;
  ibv_qp_state up_to = IBV_QPS_RTS;
};

struct Region {
  int index = -1;
  int error = 0;
  uint32_t lkey = 0;
  uint32_t rkey = 0;
};

struct WorkRequest {
  uint64_t wr_id = 0;
  int pieces = 0;
  ibv_sge piece[kMaxPieces] = {};
  ibv_wr_opcode opcode = IBV_WR_SEND;
  unsigned flags = IBV_SEND_SIGNALED;
  uint32_t imm = 0;  // host order; for invalidate the rkey
  uint64_t remote_address = 0;
  uint32_t rkey = 0;
  uint64_t compare_add = 0;
  uint64_t swap = 0;
  int ah = -1;
  uint32_t remote_qpn = 0;
  uint32_t remote_qkey = 0;

  WorkRequest& Add(uint64_t address, uint32_t length, uint32_t lkey) {
    piece[pieces++] = {address, length, lkey};
    return *this;
  }
};

struct Completion {
  bool found = false;
  ibv_wc wc{};
};

enum class Queue { kSend, kReceive };

struct EventCopy {
  bool found = false;
  int error = 0;  // errno of rdma_get_cm_event
  rdma_cm_event_type event{};
  int status = 0;
  int id = -1;  // index; a CONNECT_REQUEST creates a new id
  int listen_id = -1;
  bool has_private_data = false;
  uint8_t private_data_len = 0;
  uint8_t private_data[256] = {};
  rdma_conn_param conn{};  // valid for connected ids; pointers are not
  rdma_ud_param ud{};      // valid for UD ids
};

struct ConnectSpec {
  bool null_parameters = false;
  int private_data_len = 0;
  uint8_t private_data[256] = {};
  uint8_t responder_resources = 1;
  uint8_t initiator_depth = 1;
  uint8_t flow_control = 0;
  uint8_t retry_count = 7;
  uint8_t rnr_retry_count = 7;
  uint32_t qp_num = 0;

  ConnectSpec() = default;
  explicit ConnectSpec(int private_bytes, uint32_t seed = 1) : private_data_len(private_bytes) {
    FillPattern({private_data, sizeof private_data}, seed);
  }
};

struct IdFields {
  bool has_verbs, has_qp, has_pd, has_channel;
  int port_num, num_paths, port_space, qp_type, event;  // event -1: none
  sockaddr_in source, destination;
  ibv_gid source_gid, destination_gid;
  uint32_t qp_num;
};

class Side {
 public:
  explicit Side(Place place);
  Worker& worker() { return *worker_; }
  const std::string& address() const { return address_; }

  // ---- verbs. All return 0 or an errno unless a comment says otherwise.
  int Open();
  int CreateQp(const QpSpec& spec = {});           // index; -errno on failure
  int CreateSrq(uint32_t depth, uint32_t pieces);  // index; -errno
  QpAddress AddressOf(int qp);
  int Connect(int qp, const PathSpec& path, const QpAddress& peer);
  int Modify(int qp, const ibv_qp_attr& attributes, int mask);
  int StateOf(int qp);  // ibv_qp_state, -errno
  int DestroyQp(int qp);
  Region Register(const Buffer& buffer, int access = kAllAccess);
  Region RegisterRange(uint64_t address, size_t bytes, int access);
  int Deregister(int region);
  int PostSend(int qp, const WorkRequest& request);
  int PostReceive(int qp, const WorkRequest& request);
  int PostSrqReceive(int srq, const WorkRequest& request);
  // Waits for a completion; `found` is false after limit_ms.
  Completion Poll(int qp, Queue queue, int limit_ms = kPatience_ms);
  int CreateAh(const QpAddress& peer);  // index; -errno
  int DestroyAh(int ah);
  // Binds a memory window of type 2 to all of `buffer` by work on `qp`. Returns its rkey, 0 on
  // failure.
  uint32_t BindWindow(int qp, int region, const Buffer& buffer, int access);
  // Returns and acknowledges the next asynchronous event of the device; -1 after limit_ms.
  int NextAsyncEvent(int limit_ms);

  // ---- connection management
  int CreateId(rdma_port_space space = RDMA_PS_TCP);  // index; -errno
  int CreateSyncId(rdma_port_space space = RDMA_PS_TCP);
  int Bind(int id, const std::string& address, uint16_t port);
  int Listen(int id, int backlog = 16);
  int PortOf(int id);
  int SetReuse(int id, int value);
  int SetOption(int id, int level, int option, int value, int bytes);
  int ResolveAddr(int id, const std::string& destination, uint16_t port,
                  const std::string& source = "", int timeout_ms = 2000);
  int ResolveRoute(int id, int timeout_ms = 2000);
  int CreateCmQp(int id, const QpSpec& spec = {});  // QP index; -errno
  int DestroyCmQp(int id, int qp);
  int CmConnect(int id, const ConnectSpec& spec);
  int Accept(int id, const ConnectSpec& spec);
  int Reject(int id, int private_data_len = 0, uint32_t seed = 1);
  int Establish(int id);
  int Disconnect(int id);
  int DestroyId(int id);
  int Migrate(int id, bool to_new_channel);
  EventCopy NextEvent(int limit_ms = kPatience_ms);
  IdFields FieldsOf(int id);

 private:
  std::unique_ptr<Worker> worker_;
  std::string address_;
};

// Two connected QPs. The index is 0 on both sides unless the side had other QPs.
struct Pair {
  int local, remote;
  QpAddress local_address, remote_address;
};
// Throws std::runtime_error with the errno of the failed step.
Pair ConnectPair(Side& local, Side& remote, const QpSpec& spec = {}, const PathSpec& path = {});

// Adds consecutive pieces of a buffer. The sum of the lengths must not exceed the buffer's size.
void AddPieces(WorkRequest& request, const Buffer& buffer, uint32_t lkey,
               const std::vector<uint32_t>& lengths);

// The usual requests, of one piece.
WorkRequest ReceiveInto(uint64_t wr_id, const Buffer& to, const Region& region);
WorkRequest SendOf(uint64_t wr_id, const Buffer& from, const Region& region);
WorkRequest WriteTo(uint64_t wr_id, const Buffer& from, const Region& region, uint64_t to,
                    uint32_t rkey);
WorkRequest ReadFrom(uint64_t wr_id, const Buffer& into, const Region& region, uint64_t from,
                     uint32_t rkey);

// For messages about completions and events.
std::string Describe(const Completion& completion);
std::string Describe(const EventCopy& event);

}  // namespace rdma_contract
