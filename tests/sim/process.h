// A process on a machine, as its libraries have it: calls of calls.h, entries written into rings,
// completions taken out of them. It knows nothing of what they mean.
#pragma once

#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "emulator/verbs/ring.h"
#include "emulator/verbs/slab.h"
#include "tests/sim/world.h"

namespace rdmaemu::sim {

class Process {
 public:
  Process(World& world, Machine& machine, const std::string& name, uint64_t base,
          std::span<std::byte> memory, AddressSpaces::Watcher watcher);

  Machine& machine() { return machine_; }
  World& world() { return world_; }
  // Its host is the one that it connected to, and works.
  bool Runs() const { return alive_ && machine_.runs() && machine_.life() == life_; }
  // As Runs, but the host may be paused: the process waits, and has not ended.
  bool Lives() const { return alive_ && machine_.up() && machine_.life() == life_; }
  // The connection ends, as after SIGKILL.
  void Kill();

  // One call; the answer's errno, with `out` filled on 0. ENOTCONN when the host has gone.
  template <class In, class Out>
  int Call(CallOp op, const In& in, Out& out) {
    const Reply reply = CallBytes(static_cast<uint32_t>(op), &in, sizeof in);
    if (reply.error == 0) {
      std::memcpy(static_cast<void*>(&out), reply.body.data(),
                  std::min(reply.body.size(), sizeof out));
    }
    return reply.error;
  }
  template <class In>
  int Call(CallOp op, const In& in) {
    return CallBytes(static_cast<uint32_t>(op), &in, sizeof in).error;
  }
  // A command of rdma_user_cm.h.
  template <class Command, class Out>
  int Cm(uint32_t channel, uint32_t command, const Command& in, Out& out) {
    return Call(CallOp{static_cast<uint32_t>(CallOp::kCmCommand) + command},
                CmCall<Command>{channel, 0, in}, out);
  }
  template <class Command>
  int Cm(uint32_t channel, uint32_t command, const Command& in) {
    return Call(CallOp{static_cast<uint32_t>(CallOp::kCmCommand) + command},
                CmCall<Command>{channel, 0, in});
  }
  // The first counter that came with the last call's reply.
  std::optional<CounterId> TakeCounter();

  std::byte* At(const SharedSpan& span);
  // Writes a request into the QP's ring, its payload beside it where it is small; false when the
  // ring is full. Doorbells are rung apart.
  bool WriteSend(const CreateQpOut& qp, Ring& ring, const rxe_send_wr& wr,
                 std::span<const rxe_sge> sges, std::span<const std::byte> inline_bytes);
  static bool WriteReceive(Ring& ring, uint64_t wr_id, std::span<const rxe_sge> sges);
  // Takes the oldest completion out of the queue, and puts a payload that waits there in its place.
  std::optional<ib_uverbs_wc> Poll(const CqOut& cq, Ring& ring);
  void RingBell(uint32_t doorbell);
  // A thread that polls takes the copies that its host offers, and, some time later, does them.
  void TakeCopies();
  void FinishCopies();

 private:
  Reply CallBytes(uint32_t op, const void* in, size_t bytes);
  void TakePayload(const CreateQpOut& qp, uint32_t index, rxe_send_wqe& wqe,
                   std::span<const rxe_sge> sges);

  World& world_;
  Machine& machine_;
  uint32_t life_;
  bool alive_ = true;
  ProcessId id_{};
  HelloOut hello_{};
  std::vector<ReplyDescriptor> descriptors_;
  std::vector<CopyJob*> taken_;
};

}  // namespace rdmaemu::sim
