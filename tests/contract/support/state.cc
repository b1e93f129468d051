#include "tests/contract/support/state.h"

#include <set>

namespace rdma_contract {

State::~State() {
  for (rdma_cm_event* event : unacked)
    if (event != nullptr) rdma_ack_cm_event(event);
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] != nullptr && ids[i]->qp != nullptr) rdma_destroy_qp(ids[i]);
  for (rdma_cm_id* id : ids)
    if (id != nullptr) rdma_destroy_id(id);
  std::set<ibv_cq*> cqs;
  for (const QueuePair& pair : qps) {
    if (pair.qp != nullptr && !pair.owned_by_id) ibv_destroy_qp(pair.qp);
    if (pair.send_cq != nullptr) cqs.insert(pair.send_cq);
    if (pair.receive_cq != nullptr) cqs.insert(pair.receive_cq);
  }
  for (ibv_srq* srq : srqs)
    if (srq != nullptr) ibv_destroy_srq(srq);
  for (ibv_cq* cq : cqs) {
    ibv_comp_channel* const channel = cq->channel;
    ibv_destroy_cq(cq);
    if (channel != nullptr) ibv_destroy_comp_channel(channel);
  }
  for (ibv_ah* ah : ahs)
    if (ah != nullptr) ibv_destroy_ah(ah);
  for (ibv_mw* mw : mws)
    if (mw != nullptr) ibv_dealloc_mw(mw);
  for (ibv_mr* mr : mrs)
    if (mr != nullptr) ibv_dereg_mr(mr);
  if (pd != nullptr) ibv_dealloc_pd(pd);
  if (channel != nullptr) rdma_destroy_event_channel(channel);
  if (context != nullptr) ibv_close_device(context);
}

}  // namespace rdma_contract
