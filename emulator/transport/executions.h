// The requests that a program executes itself (abi/permit.h). The host of the program and the host
// of its peer count them in the same way, and wait for a request that a thread has begun.
#pragma once

#include <cstdint>

#include "emulator/abi/copy_jobs.h"
#include "emulator/base/memory.h"
#include "emulator/transport/engine.h"
#include "emulator/transport/qp_context.h"

namespace rdmaemu::transport {

// Executed requests that a host has not counted yet. Each WRITE and SEND has one acknowledgement,
// and each READ one request. A program may be about to count a request. Its members then come in
// parts.
class Executions {
 public:
  // SENDs of one packet each. `extra_bytes` are those of padding and immediate data.
  static Executions OfSends(uint64_t count, uint64_t bytes, uint64_t extra_bytes);
  // Moves `counted` to the program's numbers, which may have any value.
  static Executions TakeNew(Executed& shared, Executed& counted);

  bool empty() const { return IsEmpty(writes_) && IsEmpty(reads_) && IsEmpty(sends_); }
  uint64_t requests() const { return writes_.count + reads_.count + sends_.count; }
  uint64_t bytes() const { return writes_.bytes + reads_.bytes + sends_.bytes; }
  uint32_t psns() const {
    return (writes_.packets + reads_.packets + sends_.packets) & wire::kPsnMask;
  }
  // Return the numbers of packets from the program to its peer, and back.
  uint64_t there() const { return writes_.packets + reads_.count + sends_.packets; }
  uint64_t back() const { return writes_.count + reads_.packets + sends_.count; }
  // The packets between two hosts, as the program's host sends and receives them, and as the peer's
  // host does.
  DatagramSink::Exchanged ForRequester() const;
  DatagramSink::Exchanged ForResponder() const;

  // Count the requests at the QP that has sent them, and at the one that has answered.
  void CountAtRequester(QpContext& context) const;
  void CountAtResponder(QpContext& context) const;

 private:
  static bool IsEmpty(const Executed::Requests& all) {
    return (all.count | all.bytes | all.packets | all.padding | all.ends) == 0;
  }
  uint64_t there_bytes() const;
  uint64_t back_bytes() const;

  Executed::Requests writes_{}, reads_{}, sends_{};
};

// Move the PSNs of a requester, and of a responder, behind requests that have their answers.
inline void MoveRequester(QpContext& context, uint32_t psns) {
  RequesterState& s = context.requester;
  s.next_psn = PsnAdd(s.next_psn, psns);
  s.unacked_psn = s.highest_psn = s.next_psn;
  s.packets_without_ack = 0;
}
inline void MoveResponder(QpContext& context, uint32_t psns, uint32_t requests) {
  ResponderState& s = context.responder;
  s.expected_psn = PsnAdd(s.expected_psn, psns);
  s.msn = PsnAdd(s.msn, requests);
}

// Waits until no thread of the page's program executes a request by a permit that has ended, except
// a thread that a tracer holds for very long.
void AwaitExecution(Memory& memory, JobPage& page);

}  // namespace rdmaemu::transport
