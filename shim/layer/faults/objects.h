// Tables of the program's objects, which the doors fill and read. They hold the order of queue
// pairs and regions, the ids that connected actively, and the connections that a rule ended.
// Entries are never freed. Thread-safe.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <string.h>

#include "shim/layer/faults/protocol.h"
#include "shim/layer/originals.h"

namespace rdmaemu::layer::faults {

// The number of a context, from 1. Queue pair numbers and keys of regions are unique only within a
// device.
struct ContextState {
  std::atomic<uint32_t> number;
};
using ContextStates = Originals<ContextState, ContextState>;

// Returns the key of a queue pair's number or a region's lkey in tables by address. The key is odd,
// so no object has this address.
inline const void* NumberKey(const ibv_context* context, uint32_t number) {
  static std::atomic<uint32_t> contexts;
  ContextState* const state = ContextStates::FindOrMake(context);
  uint32_t of_context = state == nullptr ? 0 : state->number.load();
  if (state != nullptr && of_context == 0) {
    const uint32_t mine = ++contexts;
    if (state->number.compare_exchange_strong(of_context, mine)) of_context = mine;
  }
  return reinterpret_cast<const void*>(uint64_t{of_context} << 38 | uint64_t{number} << 6 | 1);
}

struct QpState {
  uint32_t order;   // among the QPs of the program, from 1
  ibv_qp* qp;       // nullptr: destroyed
  bool has_failed;  // a rule moved it to ERR
};
// By the QP's address, and by NumberKey for completions.
using QpStates = Originals<QpState, QpState>;

inline void Created(ibv_qp* qp) {
  static std::atomic<uint32_t> orders;
  if (qp == nullptr) return;
  const QpState state{++orders, qp, false};
  if (QpState* const entry = QpStates::FindOrMake(qp)) *entry = state;
  if (QpState* const entry = QpStates::FindOrMake(NumberKey(qp->context, qp->qp_num)))
    *entry = state;
}
template <class T>
void Created(const T&) {}
// The completions of a destroyed QP may still be in a CQ.
inline void Destroyed(const ibv_qp* qp, const ibv_context* context, uint32_t number) {
  QpState* const entry = QpStates::Find(NumberKey(context, number));
  if (entry != nullptr && entry->qp == qp) entry->qp = nullptr;
}

struct RegionState {
  uint32_t order;    // among the regions of the program, from 1
  const ibv_mr* mr;  // nullptr: deregistered
};
using RegionStates = Originals<RegionState, RegionState>;  // by NumberKey of the lkey

// Does nothing when the region is already known, because one registration may pass several
// functions.
inline void Registered(const ibv_mr* mr) {
  static std::atomic<uint32_t> orders;
  if (mr == nullptr) return;
  RegionState* const entry = RegionStates::FindOrMake(NumberKey(mr->context, mr->lkey));
  if (entry != nullptr && entry->mr != mr) *entry = {++orders, mr};
}
// Records that ibv_rereg_mr gave the region another lkey.
inline void Renamed(const ibv_mr* mr, uint32_t old_lkey) {
  RegionState* const old = RegionStates::Find(NumberKey(mr->context, old_lkey));
  RegionState* const entry = RegionStates::FindOrMake(NumberKey(mr->context, mr->lkey));
  if (old == nullptr || entry == nullptr) return;
  *entry = {old->order, mr};
  old->mr = nullptr;
}

struct IdState {
  std::atomic<bool> is_active;  // the program called rdma_connect
  // A rule ended the connection. The layer drops the kernel's later events of this connection.
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

// Describe the object of a call, which is its first argument. The parameters have the non-const
// types of the calls, because the template would match better than an overload with `const`.
inline void SetObject(MomentIn& moment, ibv_device* device) { SetDevice(moment, device); }
inline void SetObject(MomentIn& moment, ibv_context* context) {
  SetDevice(moment, context->device);
}
inline void SetObject(MomentIn& moment, rdma_cm_id* id) {
  if (id->verbs != nullptr) SetDevice(moment, id->verbs->device);
  if (id->qp != nullptr) SetQp(moment, id->qp);
}
inline void SetObject(MomentIn& moment, ibv_qp* qp) {
  SetDevice(moment, qp->context->device);
  SetQp(moment, qp);
}
inline void SetObject(MomentIn& moment, ibv_qp_ex* qp) { SetObject(moment, &qp->qp_base); }
template <class T>
void SetObject(MomentIn& moment, T* object) {
  if constexpr (requires { object->context->device; }) SetDevice(moment, object->context->device);
}
template <class T>
void SetObject(MomentIn&, const T&) {}

}  // namespace rdmaemu::layer::faults
