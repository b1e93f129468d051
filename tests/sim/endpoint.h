// The simulation's model of one queue pair: its connection, its posted work, and the expected
// result of this work.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/checkers/atomic_checker.h"
#include "tests/sim/checkers/completion_checker.h"
#include "tests/sim/checkers/delivery_checker.h"
#include "tests/sim/program.h"

namespace rdmaemu::sim {

struct Endpoint;

// A posted receive.
struct Receive {
  uint64_t wr_id = 0;
  std::vector<Piece> pieces;
  std::vector<MemoryModel::Claim> claims;  // one for each piece
  uint32_t length = 0;
  // A region for this receive alone. Without it the receive uses the program's region.
  std::optional<Region> region;
  // The receive's bytes when that region ended or moved. They must not change afterwards.
  std::optional<std::vector<std::byte>> when_region_ended;
};

// The receives of one queue pair, or of a shared receive queue.
struct ReceiveQueue {
  Program* program = nullptr;
  ibv_srq* srq = nullptr;  // nullptr: a queue pair's own
  CompletionChecker::Queue checked = 0;
  std::deque<Receive> posted;
  uint32_t depth = 0;
  uint32_t users = 0;
  uint32_t buffer_bytes = 0;  // of each receive
  bool dead = false;          // no receive of this queue is ever used again
};

// A region of the peer over the target of one request.
struct Lease {
  Endpoint* writer = nullptr;
  Program* owner = nullptr;
  Region region;
  Piece piece;
  MemoryModel::Claim claim = 0;
  bool has_moved = false;
  bool is_written = false;  // the request has succeeded
};

// A posted send request.
struct Request {
  uint64_t wr_id = 0;
  ibv_wr_opcode opcode = IBV_WR_SEND;
  bool signalled = false;
  uint32_t length = 0;
  Time posted{};
  std::optional<ibv_wc_status> planted;  // the failure that the program planned
  std::vector<Piece> sources;            // in the heap; freed at completion
  std::vector<Piece> sinks;              // where a READ or atomic writes its result
  std::vector<MemoryModel::Claim> sink_claims;
  Program* target_program = nullptr;  // of a WRITE
  Piece target;
  MemoryModel::Claim target_claim = 0;
  // The right to write the target may end before the request does. The request may then fail.
  bool may_lose_right = false;
  // Set when the right has ended: whether all bytes had arrived by then.
  std::optional<bool> whole_when_right_ended;
  Lease* lease = nullptr;           // of the target
  bool keeps_sinks = false;         // a later request sends from them
  std::optional<uint64_t> message;  // number in the stream
  struct Atomic {
    AtomicChecker::Word word;
    uint64_t operation;
  };
  std::optional<Atomic> atomic;
  enum class Window : uint8_t { kNone, kBind, kRebind, kUse, kInvalidate };
  Window window = Window::kNone;  // what the request does to the connection's window
};

// A request that the program has not posted yet.
struct Prepared {
  ibv_send_wr wr{};
  std::vector<ibv_sge> sges;
  std::vector<std::byte> inline_bytes;
  std::vector<Piece> sources;
};

// A memory window over bytes of one end. The other end writes through it.
struct WindowOf {
  enum class State : uint8_t { kNone, kBinding, kBound, kInUse, kInvalidating, kInvalid };
  State state = State::kNone;
  ibv_mw* mw = nullptr;  // of either type
  uint32_t rkey = 0;
  Piece piece;
};

// The connection attributes of two ends.
struct Link {
  uint8_t timeout = 14, retry_count = 7, rnr_retry = 7, min_rnr_timer = 1;
  uint8_t reads = 4;  // outstanding READs and atomics
  ibv_mtu mtu = IBV_MTU_1024;
  bool ipv6 = false;
};

enum class Stage : uint8_t {
  kMade,   // INIT or less: receives may be posted
  kReady,  // RTS
  kError,  // in ERR, as far as its program can see
  kGone,   // destroyed, or its process or host has ended
};

struct Endpoint {
  uint32_t number = 0;
  Program* program = nullptr;
  ibv_qp_type type = IBV_QPT_RC;
  ibv_qp* qp = nullptr;  // nullptr: destroyed
  uint32_t qpn = 0;
  std::vector<Prepared> prepared;
  CompletionQueueOf* send_cq = nullptr;
  CompletionQueueOf* recv_cq = nullptr;
  uint32_t depth = 0;
  uint32_t inline_bytes = 0;
  bool signal_all = false;
  std::shared_ptr<ReceiveQueue> receives;
  Stage stage = Stage::kMade;
  bool in_reset = true;  // no receive may be posted yet

  Endpoint* peer = nullptr;
  Link link;
  // Something may have kept the peer from answering at any time: it was not ready, it failed, or it
  // paused.
  bool disturbed = false;
  CompletionChecker::Queue sends_checked = 0;
  DeliveryChecker::Stream stream = 0;  // of the messages that this end sends
  std::deque<Request> sends;
  std::deque<std::vector<std::byte>> contents;  // of the stream's messages, until they arrive
  WindowOf window;                              // over this end's memory
  unsigned rights = 0;                          // IBV_ACCESS_*
  bool draining = false;                        // in SQD
  // The peer made a request that also uses a receive of this end.
  bool receives_may_fail = false;
  // A request that must fail was posted. No later request may arrive.
  bool walled = false;

  std::string name() const {
    return program->name() + " qp " + std::to_string(qpn) + " (#" + std::to_string(number) + ")";
  }
  bool Usable() const { return stage == Stage::kReady && program->Runs(); }
  bool SameMachine() const {
    return peer != nullptr && &program->machine() == &peer->program->machine();
  }
};

}  // namespace rdmaemu::sim
