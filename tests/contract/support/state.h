// The objects that one place of a test owns: its device, its verbs objects and its connection ids,
// by index. The destructor destroys them in the order that the API requires.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <vector>

namespace rdma_contract {

struct QueuePair {
  ibv_qp* qp = nullptr;
  ibv_cq* send_cq = nullptr;
  ibv_cq* receive_cq = nullptr;
  uint32_t psn = 0;
  bool owned_by_id = false;  // rdma_destroy_qp, not ibv_destroy_qp
};

struct State {
  State() = default;
  State(const State&) = delete;
  ~State();

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  std::vector<QueuePair> qps;
  std::vector<ibv_mr*> mrs;
  std::vector<ibv_mw*> mws;
  std::vector<ibv_srq*> srqs;
  std::vector<ibv_ah*> ahs;
  rdma_event_channel* channel = nullptr;
  std::vector<rdma_cm_id*> ids;
  // Events fetched with NextEventUnacked.
  std::vector<rdma_cm_event*> unacked;
};

}  // namespace rdma_contract
