// The engine's state of one QP: the requester's window of requests and the responder's position in
// the sequence of PSNs. It also holds the links of the scheduling round (the list of QPs with
// work).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "emulator/abi/lane_order.h"
#include "emulator/abi/permit.h"
#include "emulator/base/time.h"
#include "emulator/transport/copy_jobs.h"
#include "emulator/transport/fifo.h"
#include "emulator/transport/psn.h"
#include "emulator/transport/send_window.h"
#include "emulator/transport/send_wqe.h"
#include "emulator/transport/train.h"
#include "emulator/verbs/objects.h"

namespace rdmaemu::transport {

struct RequesterState {
  // Requests taken from the shared ring that are not completed, in order of posting.
  Fifo<SendWqe> requests;
  size_t cursor = 0;         // next request to send from; requests.size(): take one from the ring
  uint32_t next_index = 0;   // ring index of the next request to take
  uint32_t consumer = 0;     // ring index of the oldest incomplete request
  uint32_t next_psn = 0;     // of the next packet, new or repeated
  uint32_t unacked_psn = 0;  // the oldest unacknowledged PSN
  uint32_t highest_psn = 0;  // the PSN after the highest one ever sent
  // Last PSNs of READ requests, atomics and ATOMIC WRITEs without a response, in order.
  Fifo<uint32_t> reads;
  SendWindow window;                 // towards another host
  uint32_t packets_without_ack = 0;  // sent since the last request for an ACK
  uint32_t retries_left = 0, rnr_retries_left = 0;
  bool retry_started = false;  // since the last progress
  // Counted since the last progress or retry: how often an ACK timeout found trains in the local
  // queue. `queued_by_then` is the number of trains that had been queued at that timeout.
  uint32_t queue_waits = 0;
  uint64_t queued_by_then = 0;
  bool waiting_rnr = false;
  // Set after an RNR wait for a QP of this host. The requester sends one burst, and sends the rest
  // after the burst's ACK. Without this limit, the host would spend a whole window on a receiver
  // that is still not ready.
  bool probing = false;
  bool drained = false;         // SQD: SQ_DRAINED was raised
  bool is_finishing = false;    // the completion of the oldest request is being added
  uint32_t awaited_copies = 0;  // copies of its trains, which wait at the peer
};

// A READ, atomic, ATOMIC WRITE or FLUSH that a responder remembers in order to repeat its response
// (IBTA 9.7.5.1.5).
struct ResponderResource {
  enum class Kind : uint8_t { kNone, kRead, kAtomic, kAtomicWrite, kFlush };
  Kind kind = Kind::kNone;
  uint32_t first_psn = 0, last_psn = 0;
  uint64_t address = 0;
  uint32_t rkey = 0;
  uint32_t length = 0;
  uint64_t original = 0;  // an atomic's response
};

// A response that waits behind READ responses.
struct Response {
  enum class Kind : uint8_t { kAck, kAtomic, kEmptyRead, kRead };
  Kind kind = Kind::kAck;
  uint8_t syndrome = 0;
  uint32_t psn = 0;
  uint32_t msn = 0;
  uint64_t original = 0;
  // kRead: describes the part that is not sent yet.
  bool begins = false;
  uint64_t address = 0;
  uint32_t rkey = 0;
  uint32_t length = 0;
};

enum class Message : uint8_t { kNone, kSend, kWrite };

// Bounds of the payloads that may still wait in slots beside their completions (slab.h).
struct WaitingBytes {
  uint64_t low = UINT64_MAX, high = 0;
};

struct ResponderState {
  uint64_t peer_epoch = 0;  // epoch of the latest local requester; 0: on another host
  uint32_t expected_psn = 0;
  uint32_t ack_psn = 0;  // the PSN after the last request other than READs; bounds a repeated ACK
  uint32_t msn = 0;
  Message message = Message::kNone;  // message begun by a FIRST packet
  bool nak_sent = false;             // a NAK for expected_psn was sent, so no second one follows
  bool drop_message = false;         // UC: the rest of a broken message
  bool established = false;          // COMM_EST was raised
  std::optional<RecvWqe> receive;
  uint32_t receive_key = 0;    // the lkey of the last SEND's receive; 0: it had not one SGE
  uint64_t received = 0;       // bytes of the message placed so far
  bool payload_waits = false;  // the payload of the message that completes next
  WaitingBytes waiting;
  // The WRITE in progress.
  uint64_t write_address = 0;
  uint32_t write_rkey = 0;
  uint32_t write_length = 0;
  uint32_t write_left = 0;
  std::vector<ResponderResource> resources;  // max_dest_rd_atomic of them
  size_t next_resource = 0;
  Fifo<Response> responses;
  // Core::LocalQueued() behind the QP's last READ response to a QP of this host. 0: all of them
  // were delivered.
  uint64_t reads_queued = 0;
  std::optional<Response> collected_ack;  // during one Engine::Receive
};

// Says where the bytes of the next SEND go: directly after the trains in front of it, which have
// not been delivered yet.
struct ReceiveCursor {
  bool known = false;   // false: a SEND must wait until it is first
  uint32_t index = 0;   // of the receive in the QP's own ring; unused for an SRQ
  uint64_t offset = 0;  // bytes of the receive that a message in progress has filled
};
// A train that waits for a copy, or behind a train that waits (parking.h).
struct ParkedTrain {
  std::unique_ptr<Train> train;
  JobTicket ticket{};
  JobSide to{};              // where an offered copy goes
  ReceiveCursor behind{};    // for a request with a ticket: where the next SEND goes
  bool host_copies = false;  // the host makes the copy and does not offer it again
};
struct ParkedStream {
  Fifo<ParkedTrain> trains;
  size_t looked_at = 0;  // number of leading trains that were offered for a copy, or never will be
};

// Where the next WRITE goes, behind those whose destination was named (form_targets.h).
struct WriteCursor {
  uint64_t epoch = 0;  // of the QP; 0: no destination was named
  uint32_t psn = 0;
  bool in_message = false;
  bool is_known = false;
  uint64_t address = 0;
  uint32_t rkey = 0;
  uint32_t left = 0;
};

// The permit of a requester (permits.h).
struct GrantedPermit {
  bool is_listed = false;
  bool is_given = false;     // and not interrupted
  uint32_t last_number = 0;  // of all permits of the QP
  Executed counted{};        // the requests that the host has counted
  // For a peer on another host.
  uint32_t slot = 0;        // of JobPage::lent, from 1; 0: none
  uint32_t owner = 0;       // LentPermit::owner
  uint32_t offered = 0;     // the number of the permit that the other host may lend; 0: none
  bool is_unused = false;   // nothing was executed since the last offer
  uint32_t wasted = 0;      // offers in a row of which the program used none
  uint32_t skips_left = 0;  // grants without an offer, because offers are wasted
};

// The permit of a responder for a program of another host (lent_permits.h).
struct PermitLoan {
  std::shared_ptr<JobPage> page;
  uint32_t slot = 0;
  uint32_t owner = 0;    // LentPermit::owner
  Executed counted{};    // the requests that this host has counted
  bool is_lent = false;  // and not ended
};

class LaneMemory;

// The messages of a lane's present opening that a host has counted (lanes.h).
struct CountedMessages {
  uint32_t count = 0;
  uint64_t bytes = 0, extra_bytes = 0;
};

// Tries less and less often what was in vain.
class Patience {
 public:
  // Call this before each attempt. Returns false if this one must be left out.
  bool MayTry() {
    if (skips_left_ > 0) {
      skips_left_--;
      return false;
    }
    if (++vain_ > kPatience) {
      skips_left_ = (uint32_t{1} << std::min(vain_ - kPatience, kMostDoublings)) - 1;
    }
    return true;
  }
  void Succeeded() { vain_ = skips_left_ = 0; }

 private:
  // A program uses its first lane when it posts a receive. It may post many receives together, so
  // as many attempts in a row may be in vain.
  static constexpr uint32_t kPatience = 64;
  static constexpr uint32_t kMostDoublings = 10;

  uint32_t vain_ = 0;
  uint32_t skips_left_ = 0;
};

// The lane of a requester's SENDs (lanes.h).
struct SentLane {
  std::shared_ptr<LaneMemory> memory;
  uint32_t grants_until_offer = 0;  // to the peer's host
  bool is_open = false;             // and not interrupted
  uint32_t number = 0;              // of the last opening
  CountedMessages counted{};
  Patience patience;
};

// The lane of a responder (lanes.h).
struct ReceivedLane {
  std::shared_ptr<LaneMemory> memory;
  bool is_from_elsewhere = false;  // the sender is a QP of another host
  JobReference reference{};        // of the memory in that host
  Patience patience;
  bool is_open = false;
  uint32_t number = 0;
  uint32_t receive_index = 0;  // in the receive ring, of the receive for the first message
  CountedMessages counted{};
  uint32_t counted_taken = 0;  // of them, those that the program has taken
  uint32_t room = 0;           // the lane's part of CompletionQueue::lane_room
  LaneCursor cursor{};         // while the host takes messages
  uint32_t moving = 0;         // messages that the host has taken, and that are not in the CQ
  uint32_t lost = 0;           // messages with a thread that does not place them
  bool is_delivering = false;  // the host handles one of its messages
  bool closes = false;         // closes after that message
  bool is_due = false;         // opens again after the requests that have arrived together
};

struct QpContext final : TransportState {
  explicit QpContext(QueuePair& queue_pair) : qp(&queue_pair) {}

  QueuePair* qp;
  uint64_t epoch = 0;  // changes with every incarnation of the QP; never 0
  // The incarnation that the QP has ended with a fatal NAK. Its READ responses are before the NAK.
  uint64_t refused_epoch = 0;
  uint32_t mtu_bytes = 0;
  bool peer_is_local = false;
  RequesterState requester;
  ResponderState responder;
  ParkedStream parked[2];  // requests, responses
  bool is_parking = false;
  WriteCursor ahead;
  GrantedPermit permit;
  std::unique_ptr<PermitLoan> lent;             // nullptr: none
  std::unique_ptr<SentLane> sent_lane;          // nullptr: none
  std::unique_ptr<ReceivedLane> received_lane;  // nullptr: none

  // `deadline` is when the engine must handle the QP. `armed` is the QP's entry in the timer queue,
  // which may be earlier. Progress changes only `deadline`. The timer queue is updated when `armed`
  // expires.
  std::optional<Time> deadline;
  std::optional<Time> armed;

  // Links in the round. Null when the QP is not in the round.
  QpContext* round_next = nullptr;
  QpContext* round_previous = nullptr;
  bool in_round = false;
};

// A FIFO of QPs that permits removal from the middle.
class Round {
 public:
  bool empty() const { return first_ == nullptr; }
  QpContext* first() const { return first_; }
  void Push(QpContext& context) {
    if (context.in_round) return;
    context.in_round = true;
    context.round_next = nullptr;
    context.round_previous = last_;
    (last_ != nullptr ? last_->round_next : first_) = &context;
    last_ = &context;
  }
  QpContext* Pop() {
    QpContext* context = first_;
    if (context != nullptr) Remove(*context);
    return context;
  }
  void Remove(QpContext& context) {
    if (!context.in_round) return;
    context.in_round = false;
    (context.round_previous != nullptr ? context.round_previous->round_next : first_) =
        context.round_next;
    (context.round_next != nullptr ? context.round_next->round_previous : last_) =
        context.round_previous;
  }

 private:
  QpContext* first_ = nullptr;
  QpContext* last_ = nullptr;
};

}  // namespace rdmaemu::transport
