// What the simulation knows of one queue pair: how it is connected, what was posted to it and what
// must become of that.
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
  std::vector<MemoryModel::Claim> claims;  // one a piece
  uint32_t length = 0;
  // A region for this receive alone; without one, the program's.
  std::optional<Region> region;
  // What its bytes were when that region ended or moved: they stay so.
  std::optional<std::vector<std::byte>> when_region_ended;
};

// The receives of one queue pair, or those that several share.
struct ReceiveQueue {
  Program* program = nullptr;
  ibv_srq* srq = nullptr;  // nullptr: a queue pair's own
  CompletionChecker::Queue checked = 0;
  std::deque<Receive> posted;
  uint32_t depth = 0;
  uint32_t users = 0;
  uint32_t buffer_bytes = 0;  // of each receive
  bool dead = false;          // nothing posted here is ever taken again
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
  std::optional<ibv_wc_status> planted;  // how it is bound to fail
  std::vector<Piece> sources;            // of the heap; given back when it has completed
  std::vector<Piece> sinks;              // where a READ or atomic brings bytes to
  std::vector<MemoryModel::Claim> sink_claims;
  Program* target_program = nullptr;  // of a WRITE
  Piece target;
  MemoryModel::Claim target_claim = 0;
  // The right to write the target may end before the request has: then it may fail.
  bool may_lose_right = false;
  // The right has ended. Whether all bytes were there by then.
  std::optional<bool> whole_when_right_ended;
  Lease* lease = nullptr;           // of the target
  bool keeps_sinks = false;         // a later request sends from them
  std::optional<uint64_t> message;  // number in the stream
  struct Atomic {
    AtomicChecker::Word word;
    uint64_t operation;
  };
  std::optional<Atomic> atomic;
  enum class Window : uint8_t { kNone, kBind, kUse, kInvalidate };
  Window window = Window::kNone;  // what it does to the connection's window
};

// A request that the library has not seen yet.
struct Prepared {
  ibv_send_wr wr{};
  std::vector<ibv_sge> sges;
  std::vector<std::byte> inline_bytes;
  std::vector<Piece> sources;
};

// A memory window over bytes of one end, through which the other end writes.
struct WindowOf {
  enum class State : uint8_t { kNone, kBinding, kBound, kInUse, kInvalidating, kInvalid };
  State state = State::kNone;
  ibv_mw* mw = nullptr;
  uint32_t rkey = 0;
  Piece piece;
};

// How two ends are connected.
struct Link {
  uint8_t timeout = 14, retry_count = 7, rnr_retry = 7, min_rnr_timer = 1;
  uint8_t reads = 4;  // outstanding READs and atomics
  ibv_mtu mtu = IBV_MTU_1024;
  bool ipv6 = false;
};

enum class Stage : uint8_t {
  kMade,   // INIT or less: receives may be posted
  kReady,  // RTS
  kError,  // in ERR, as far as its program knows
  kGone,   // destroyed, or its process or host has gone
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
  // What may have kept the peer from answering, ever: it was not ready, it failed, it paused.
  bool disturbed = false;
  CompletionChecker::Queue sends_checked = 0;
  DeliveryChecker::Stream stream = 0;  // of what this end sends
  std::deque<Request> sends;
  std::deque<std::vector<std::byte>> contents;  // of the stream's messages, until they arrive
  WindowOf window;                              // over this end's memory
  unsigned rights = 0;                          // IBV_ACCESS_*
  bool draining = false;                        // in SQD
  // The peer asked for something that takes a receive of this end with it.
  bool receives_may_fail = false;
  // A request was posted that is bound to fail: nothing behind it may arrive.
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
