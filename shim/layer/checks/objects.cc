#include "shim/layer/checks/objects.h"

namespace rdmaemu::layer::checks {
namespace {

void Release(const Work& work) {
  for (int i = 0; i < work.count; i++) {
    Mr& mr = *work.uses[i].mr;
    if (mr.serial == work.uses[i].serial && mr.in_flight > 0) mr.in_flight--;
  }
  delete work.sample;
  if (work.watch != nullptr) work.watch->End();
}

// Returns whether a peer may write to an address of the program's memory.
bool IsRemotelyWritable(uint64_t address) {
  constexpr unsigned kWrites = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  bool is_writable = false;
  All<Mr>().ForEachAlive([&](const Mr& mr) {
    is_writable |= (mr.access & kWrites) != 0 && (!mr.is_direct || address - mr.begin < mr.length);
  });
  return is_writable;
}

// Reports a send whose memory differs from that at the post.
void CheckSample(const Qp& qp, const Work& work) {
  for (int i = 0; i < work.count; i++) {
    const Mr& mr = *work.uses[i].mr;
    if (mr.serial != work.uses[i].serial || mr.life != Life::kAlive) return;
  }
  const uint64_t address = work.sample->Changed();
  if (address == 0 || IsRemotelyWritable(address)) return;
  ReportAt(Rule::kMR_007, "the post of a send", work.sample->place, &qp, work.uses[0].mr,
           "the byte at 0x%llx changed before the completion was polled",
           static_cast<unsigned long long>(address));
}

// Ends the watch of a receive's memory, and reports an access of the program.
void CheckWatch(const Qp& qp, Work& work) {
  Watch& watch = *work.watch;
  work.watch = nullptr;
  const void* const code = watch.End();
  if (code == nullptr || IsRemotelyWritable(watch.address())) return;
  std::string post;
  AppendAddress(watch.place, post);
  ReportAt(Rule::kMR_008, "the access", code, &qp, work.uses[0].mr,
           "the bytes at 0x%llx belong to the receive that was posted at %s",
           static_cast<unsigned long long>(watch.address()), post.c_str());
}

void CountDown(Cq* cq) {
  if (cq != nullptr && cq->in_flight > 0) cq->in_flight--;
}

// Removes the first send. Returns whether it was signalled. `checks`: also compares its sample.
bool PopSend(Qp& qp, bool checks) {
  if (checks && qp.sends.front().sample != nullptr) CheckSample(qp, qp.sends.front());
  const bool is_signalled = qp.sends.front().is_signalled;
  Release(qp.sends.front());
  qp.sends.Pop();
  if (is_signalled) {
    CountDown(qp.send_cq);
  } else {
    qp.unsignalled--;
  }
  return is_signalled;
}

}  // namespace

uint32_t NextSerial() {
  static uint32_t serial;
  return ++serial;
}

MrsByLkey& MrsOf(const void* context) {
  static auto* const all = new std::unordered_map<const void*, MrsByLkey>;
  return (*all)[context];
}

QpsByNumber& QpsOf(const void* context) {
  static auto* const all = new std::unordered_map<const void*, QpsByNumber>;
  return (*all)[context];
}

void ForgetWork(Qp& qp) {
  while (!qp.sends.is_empty()) PopSend(qp, false);
  while (!qp.receives.is_empty()) CompleteReceive(qp, false);
}

void StopTracking(Qp& qp) {
  ForgetWork(qp);
  qp.is_tracked = false;
}

void CompleteSend(Qp& qp, bool is_programs) {
  while (!qp.sends.is_empty() && !PopSend(qp, is_programs)) {
  }
}

void CompleteReceive(Qp& qp, bool is_programs) {
  if (qp.receives.is_empty()) return;
  if (is_programs && qp.receives.front().watch != nullptr) CheckWatch(qp, qp.receives.front());
  Release(qp.receives.front());
  qp.receives.Pop();
  CountDown(qp.recv_cq);
}

void UndoSend(Qp& qp) {
  const Work& work = qp.sends.back();
  Release(work);
  if (work.is_signalled) {
    if (qp.send_cq != nullptr) qp.send_cq->signalled--;
    CountDown(qp.send_cq);
  } else {
    qp.unsignalled--;
  }
  qp.sends.PopBack();
}

void UndoReceive(Qp& qp) {
  Release(qp.receives.back());
  qp.receives.PopBack();
  CountDown(qp.recv_cq);
}

}  // namespace rdmaemu::layer::checks
