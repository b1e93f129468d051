// Small SENDs to a queue pair of the same host, without the queue of local trains. The host copies
// the payload from one program's shared memory to the other's, and completes the receive and then
// the SEND. No packet exists, so this is done only while nobody could see one, as for permits
// (permits.h). PSNs and counters change as if there had been packets.
//
// Engine::Take only notes such SENDs, and Engine::Deliver executes them. The host looks in between
// which programs have ended. So no SEND reaches a receiver that had ended before it was posted.
#pragma once

#include <utility>
#include <vector>

#include "emulator/transport/completer.h"
#include "emulator/transport/core.h"

namespace rdmaemu::transport {

class DirectSends {
 public:
  DirectSends(Core& core, Completer& completer) : core_(core), completer_(completer) {}

  // A queue pair whose next request waits for Engine::Deliver.
  struct Noted {
    Handle qp;
    uint64_t epoch;
    uint32_t end;  // ring index behind the requests that were posted when it was noted
  };

  // Call this before the first request of a QP's turn.
  void BeginTurn(QpContext& context);
  // Returns true if Execute may execute the request, which is at the QP's cursor.
  bool MayExecute(QpContext& context, const SendWqe& request) const {
    return peer_ != nullptr && IsSmallSend(request) && IsFirst(context, request);
  }
  void Note(const QpContext& context) {
    noted_.push_back({context.qp->handle, context.epoch, context.qp->send_ring.Producer()});
  }
  bool has_noted() const { return !noted_.empty(); }
  std::vector<Noted> TakeNoted() { return std::exchange(noted_, {}); }
  // Executes a request for which MayExecute is true. Returns false if the request must take the way
  // of all requests. The peer's receive may then be taken already (ResponderState::receive).
  bool Execute(Time now, QpContext& context, SendWqe& request);
  // Returns how many requests were executed in all.
  uint64_t executed() const { return executed_; }

 private:
  static bool IsSmallSend(const SendWqe& request) {
    return (request.wr.opcode == IBV_WR_SEND || request.wr.opcode == IBV_WR_SEND_WITH_IMM) &&
           request.length <= kSlabBytes && request.data.size() == request.length;
  }
  static bool IsFirst(QpContext& context, const SendWqe& request) {
    RequesterState& s = context.requester;
    return &s.requests.front() == &request && !request.started && s.next_psn == s.unacked_psn &&
           s.next_psn == s.highest_psn;
  }
  bool HasPayload(const QpContext& context, const SendWqe& request);
  void Describe(const QpContext& context, const SendWqe& request);
  bool Place(QpContext& context, const SendWqe& request);

  Core& core_;
  Completer& completer_;
  QpContext* peer_ = nullptr;  // of the QP whose turn it is; nullptr: it must send trains
  Train train_;                // reused for each message
  bool is_addressed_ = false;  // the train has the addresses of the QP whose turn it is
  Pieces source_, destination_;
  std::vector<Noted> noted_;  // by the turns of one Engine::Take
  uint64_t executed_ = 0;
};

}  // namespace rdmaemu::transport
