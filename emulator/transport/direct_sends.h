// Small SENDs to a queue pair of the same host, without the queue of local trains. The host copies
// the payload from one program's shared memory to the other's, and completes the receive and then
// the SEND. No packet exists, so this is done only while nobody could see one, as for permits
// (permits.h). PSNs and counters change as if there had been packets.
#pragma once

#include "emulator/transport/completer.h"
#include "emulator/transport/core.h"

namespace rdmaemu::transport {

class DirectSends {
 public:
  DirectSends(Core& core, Completer& completer) : core_(core), completer_(completer) {}

  // Call this before the first request of a QP's turn.
  void BeginTurn(QpContext& context);
  // Executes the request, which is at the QP's cursor and has not begun. Returns false if it must
  // take the way of all requests. The peer's receive may then be taken already
  // (ResponderState::receive).
  bool Execute(Time now, QpContext& context, SendWqe& request) {
    return peer_ != nullptr && IsSmallSend(request) && IsFirst(context, request) &&
           ExecuteNow(now, context, request);
  }

 private:
  static bool IsSmallSend(const SendWqe& request);
  static bool IsFirst(QpContext& context, const SendWqe& request);
  bool ExecuteNow(Time now, QpContext& context, SendWqe& request);
  bool HasPayload(const QpContext& context, const SendWqe& request);
  bool Place(QpContext& context, const SendWqe& request);

  Core& core_;
  Completer& completer_;
  QpContext* peer_ = nullptr;  // of the QP whose turn it is; nullptr: it must send trains
  Train train_;                // reused for each message
  Pieces source_, destination_;
};

}  // namespace rdmaemu::transport
