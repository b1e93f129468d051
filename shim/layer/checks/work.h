// Checks and records of single work requests. Use these functions only within a Section.
#pragma once

#include <infiniband/verbs.h>

#include "shim/layer/checks/objects.h"

namespace rdmaemu::layer::checks {

void CheckSendState(const Qp& qp, const ibv_qp* address, const char* call);
// Returns false when the caller must not post the send, because a provider would use a null
// pointer.
bool CheckSend(const Qp& qp, const ibv_send_wr& wr, const char* call);
void CheckReceiveQueue(Qp& qp, const ibv_qp* address, const char* call);
void CheckReceive(const Qp& qp, const ibv_recv_wr& wr, const char* call);
void CheckSrqReceive(const Srq& srq, const ibv_context* context, const ibv_recv_wr& wr,
                     const char* call);

// Returns whether a posted send has a completion.
bool HasSignalled(Qp& qp);
// `samples`: take a sample of the send's memory.
void PushSend(Qp& qp, const ibv_send_wr& wr, bool samples);
// `watches`: the memory may be watched.
void PushReceive(Qp& qp, const ibv_recv_wr& wr, bool watches);

}  // namespace rdmaemu::layer::checks
