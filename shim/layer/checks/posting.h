// Checks and records of the calls that post work and take completions: by lists of work requests,
// and by ibv_wr_* and extended completion queues. Use the functions only within a Section.
#pragma once

#include <infiniband/verbs.h>

#include "shim/layer/checks/hook.h"

namespace rdmaemu::layer::checks {

// The queue pair of a call that posts, which another thread may destroy while the call runs.
struct PostCheck : Check {
  Qp* qp = nullptr;
  uint32_t serial = 0;

  bool Find(const ibv_qp* address);
  bool StillExists() const;
};

// A call that posts sends. The sends are recorded before the call, because another thread may poll
// their completions before the call returns.
struct SendCheck : PostCheck {
  size_t posted = 0;  // recorded sends
  bool is_full = false, has_signalled = false;

  // Returns false when a provider would use a null pointer.
  bool Record(const char* call, const ibv_qp* address, const ibv_send_wr* list);
  // `accepted`: how many of the list's sends are posted, when the call failed.
  void Finish(const char* call, int error, size_t accepted);

 private:
  void ReportFull(const char* call) const;
};

void CheckCqRoom(const Check& check, const char* call, const Qp& qp, const Cq* cq);

// Records a completion that the program has taken. `wc` needs wr_id, status, qp_num and, when the
// status is IBV_WC_SUCCESS, opcode.
void Complete(const ibv_context* context, const ibv_wc& wc, const char* call, bool is_programs);

}  // namespace rdmaemu::layer::checks
