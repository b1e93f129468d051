// What the doors remember about a program's objects: the order of its queue pairs, and which ids
// connected actively or lost their connection to a rule. Entries are never freed. Thread-safe.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <string.h>

#include "shim/layer/faults/protocol.h"
#include "shim/layer/originals.h"

namespace rdmaemu::layer::faults {

struct QpState {
  uint32_t order;  // among the QPs of the program, from 1
  ibv_qp* qp;      // nullptr: destroyed
};
// By the QP's address, and by the QP's number (as an address) for completions.
using QpStates = Originals<QpState, QpState>;

inline const void* NumberKey(uint32_t qp_num) {
  return reinterpret_cast<const void*>(uintptr_t{qp_num} << 6 | 1);
}

inline void Created(ibv_qp* qp) {
  static std::atomic<uint32_t> orders;
  if (qp == nullptr) return;
  const QpState state{++orders, qp};
  if (QpState* const entry = QpStates::FindOrMake(qp)) *entry = state;
  if (QpState* const entry = QpStates::FindOrMake(NumberKey(qp->qp_num))) *entry = state;
}
template <class T>
void Created(const T&) {}
// A destroyed QP's completions may still be in a CQ.
inline void Destroyed(const ibv_qp* qp, uint32_t number) {
  QpState* const entry = QpStates::Find(NumberKey(number));
  if (entry != nullptr && entry->qp == qp) entry->qp = nullptr;
}

struct IdState {
  std::atomic<bool> is_active;  // the program called rdma_connect
  // A rule ended the connection. The kernel's later events of the connection are not delivered.
  std::atomic<bool> is_ended;
  std::atomic<bool> is_removed;  // a rule gave the id DEVICE_REMOVAL
};
using IdStates = Originals<IdState, IdState>;

inline void SetDevice(MomentIn& moment, const ibv_device* device) {
  if (device != nullptr) memccpy(moment.device, device->name, 0, sizeof moment.device - 1);
}
inline void SetQp(MomentIn& moment, const ibv_qp* qp) {
  const QpState* const state = QpStates::Find(qp);
  if (state == nullptr) return;
  moment.qp = qp->qp_num;
  moment.qp_order = state->order;
}

// Describe the object of a call: its first argument.
inline void SetObject(MomentIn& moment, const ibv_device* device) { SetDevice(moment, device); }
inline void SetObject(MomentIn& moment, const ibv_context* context) {
  SetDevice(moment, context->device);
}
inline void SetObject(MomentIn& moment, const rdma_cm_id* id) {
  if (id->verbs != nullptr) SetDevice(moment, id->verbs->device);
  if (id->qp != nullptr) SetQp(moment, id->qp);
}
inline void SetObject(MomentIn& moment, const ibv_qp* qp) {
  SetDevice(moment, qp->context->device);
  SetQp(moment, qp);
}
template <class T>
void SetObject(MomentIn& moment, T* object) {
  if constexpr (requires { object->context->device; }) SetDevice(moment, object->context->device);
}
template <class T>
void SetObject(MomentIn&, const T&) {}

}  // namespace rdmaemu::layer::faults
