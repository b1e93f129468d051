// Forms of trains to other hosts (train_form.h) whose payload a program's thread copies
// (copy_jobs.h). A form is in the network before its payload is. Its receiver waits for it, so the
// order of the forms stays. The host copies what no thread copies.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "emulator/base/time.h"
#include "emulator/transport/engine.h"
#include "emulator/transport/payload_owner.h"
#include "emulator/transport/qp_context.h"
#include "emulator/transport/train.h"

namespace rdmaemu::transport {

// A thread that has taken a copy for this long, and was not stopped (kLookAfter), is held by the
// kernel or by a tracer. The receiver of the form waits meanwhile, and with it everything that was
// sent later to the same host.
inline constexpr Duration kLongestFill = std::chrono::milliseconds(20);

class FormFills {
 public:
  FormFills(Memory& memory, PayloadOwner& payloads) : memory_(memory), payloads_(payloads) {}

  // Returns true if Add would offer the copy of a request's payload to its program.
  bool Takes(Time now, const QpContext& requester, const Train& train);
  // Takes a form that the network has. Offers the copy, or makes it now.
  void Add(Time now, const QpContext& requester, const Train& train,
           std::unique_ptr<UnfilledForm> form);
  // Finishes forms whose copies have ended. Returns true if there were any.
  bool Turn(Time now);
  // Finishes all forms. Call this before program memory may change, and before the host waits for
  // another host: that host may wait for a form.
  void FinishAll();
  bool empty() const { return fills_.empty(); }
  // Returns true if Turn has nothing to do now or later.
  bool is_idle() const { return fills_.empty() && held_.empty(); }
  // Returns true while a request of the QP must not be sent again: a thread is held while it
  // copies the request's payload to a program of another host. It will write there later, and a
  // completed request would have given these bytes back to that program.
  bool Holds(Handle qp, uint64_t epoch) const;
  // Returns true if Holds does, or while a thread copies a form that it has had since `since`, or
  // longer. A request that was sent later waits in the network behind that form, and is not lost.
  bool Delays(Handle qp, uint64_t epoch, Time since) const;
  // Returns true if Turn would finish a form whose copy has ended. The receiver sees a form with a
  // mark before.
  bool AnyEnded();
  std::optional<Time> NextDeadline() const;

  // A request whose form is lost: its payload could not be read, or its thread was stopped. In the
  // second case the request must be sent again.
  struct Lost {
    Handle qp;
    uint64_t epoch;
    uint32_t psn;
    bool is_unreadable = false;
  };
  // Frees the forms that stopped threads of this process could still write. Call this when the
  // process has ended.
  void Forget(ProcessId process);
  // Returns the lost ones since the last call.
  std::vector<Lost> TakeLost() { return std::exchange(lost_, {}); }

 private:
  struct Fill {
    JobTicket ticket;
    std::unique_ptr<UnfilledForm> form;
    Pieces from;
    Lost request;
    Time begun_at;
  };
  // Takes back all offers to a program if one of them is overdue. Begins with the last offer
  // (Parking::TakeBackOffers): a thread that copies to another host's program must not overtake a
  // form, which that host copies later.
  void TakeBackOverdue(Time now);
  void TakeBackFrom(ProcessId program);
  void CopyByHost(Fill& fill);
  // Finishes the form when no thread will copy it, or one was stopped during its copy (`stopped`).
  void Finish(Fill& fill, bool stopped);
  // Loses the form. Its request is sent again when its thread has ended the copy.
  void Hold(Time now, Fill& fill);
  bool TurnHeld(Time now);

  Memory& memory_;
  PayloadOwner& payloads_;
  std::vector<Fill> fills_;  // by begun_at; bounded by the slots of the programs' JobPages
  std::vector<Fill> held_;   // as bounded as abandoned_; `begun_at` is when Turn looked last
  std::vector<Lost> lost_;
  // Forms that stopped threads of these processes may still write. At most JobPage::kSlots for each
  // process, because a program with a stopped thread gets no more offers.
  std::vector<std::pair<ProcessId, std::unique_ptr<UnfilledForm>>> abandoned_;
};

}  // namespace rdmaemu::transport
