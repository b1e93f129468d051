#include "shim/rdmacm/announcement.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

namespace rdmaemu::rdmacm {
namespace {

// Returns true if ibv_modify_qp is the function of the library that makes the calls. Otherwise the
// program has a function of this name, which may modify the queue pair in another way.
bool ModifiesAsAnnounced() {
  enum : int { kUnknown, kOurs, kOther };
  static std::atomic<int> known{kUnknown};
  int whose = known.load(std::memory_order_relaxed);
  if (whose == kUnknown) {
    Dl_info modify = {}, call = {};
    const bool is_ours = dladdr(reinterpret_cast<void*>(&ibv_modify_qp), &modify) != 0 &&
                         dladdr(reinterpret_cast<void*>(&rdmaemu_client_call), &call) != 0 &&
                         modify.dli_fbase == call.dli_fbase;
    whose = is_ours ? kOurs : kOther;
    known.store(whose, std::memory_order_relaxed);
  }
  return whose == kOurs;
}

}  // namespace

Announcement::Announcement(First first) : first_(first) {
  void* const memory = malloc(sizeof(rdmaemu_announcement));
  if (memory == nullptr) {
    is_refused_ = true;
    return;
  }
  announced_ = new (memory) rdmaemu_announcement;
  constexpr auto kCommand = static_cast<uint32_t>(CallOp::kCmCommand);
  switch (first) {
    case First::kCreateQp:
      announced_->first_op = static_cast<uint32_t>(CallOp::kCreateQp);
      announced_->first_gift = StepGift::kQueuePair;
      break;
    case First::kModifyQp:
      announced_->first_op = static_cast<uint32_t>(CallOp::kModifyQp);
      break;
    case First::kInitQpAttr:
      announced_->first_op = kCommand + RDMA_USER_CM_CMD_INIT_QP_ATTR;
      announced_->first_gift = StepGift::kAttributes;
      break;
    case First::kGetEvent:
      announced_->first_op = kCommand + RDMA_USER_CM_CMD_GET_EVENT;
      announced_->first_gift = StepGift::kEvent;
      break;
  }
}

Announcement::~Announcement() {
  if (is_begun_) rdmaemu_client_end_announcement(announced_);
  free(announced_);
}

void Announcement::Add(uint32_t op, const void* in, size_t size, StepLink link, StepGift gift) {
  if (is_refused_) return;
  const size_t at = client::kFirstStepRoom + announced_->in_bytes;
  const StepHeader header{op, static_cast<uint32_t>(size), static_cast<uint32_t>(link),
                          static_cast<uint32_t>(gift)};
  const size_t bytes = sizeof(header) + PaddedStep(size);
  if (announced_->steps + 1 == kMaxSequenceSteps || at + bytes > sizeof(announced_->in)) {
    is_refused_ = true;
    return;
  }
  std::memset(announced_->in + at, 0, bytes);
  std::memcpy(announced_->in + at, &header, sizeof(header));
  std::memcpy(announced_->in + at + sizeof(header), in, size);
  announced_->in_bytes += static_cast<uint32_t>(bytes);
  announced_->steps++;
}

void Announcement::AddQueries(const Channel& channel) {
  if (is_refused_) return;
  announced_->devices = DevicesInUse();
  rdma_ucm_query query = {};
  for (const uint32_t option :
       {RDMA_USER_CM_QUERY_ADDR, RDMA_USER_CM_QUERY_GID, RDMA_USER_CM_QUERY_PATH}) {
    query.option = option;
    AddCommand(channel, RDMA_USER_CM_CMD_QUERY, query, StepLink::kEvent, StepGift::kNothing);
  }
}

void Announcement::AddMove(const Id& id, uint32_t qp, const ibv_qp_attr& attributes,
                           StepLink link) {
  // The first INIT_QP_ATTR may be the call that sends the announced ones.
  if (is_refused_) return;
  if (announced_->steps > 0 || first_ != First::kInitQpAttr) {
    rdma_ucm_init_qp_attr command = {};
    command.id = id.handle;
    command.qp_state = static_cast<uint32_t>(attributes.qp_state);
    AddCommand(ChannelOf(id), RDMA_USER_CM_CMD_INIT_QP_ATTR, command, StepLink::kNone,
               StepGift::kAttributes);
  }
  ModifyQpIn in = {};
  in.handle = qp;
  in.mask = IBV_QP_STATE;
  in.attr = attributes;
  Add(static_cast<uint32_t>(CallOp::kModifyQp), &in, sizeof(in), link, StepGift::kNothing);
}

void Announcement::AddMovesToReady(const Id& id, uint8_t responder_resources,
                                   uint8_t initiator_depth) {
  const uint32_t qp = id.qp->handle;
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_INIT;
  AddMove(id, qp, attributes, StepLink::kAttributes);
  attributes.qp_state = IBV_QPS_RTR;
  attributes.max_dest_rd_atomic = responder_resources;
  AddMove(id, qp, attributes,
          responder_resources == RDMA_MAX_RESP_RES ? StepLink::kAttributes
                                                   : StepLink::kAttributesButDestReads);
  attributes.qp_state = IBV_QPS_RTS;
  attributes.max_rd_atomic = initiator_depth;
  AddMove(id, qp, attributes,
          initiator_depth == RDMA_MAX_INIT_DEPTH ? StepLink::kAttributes
                                                 : StepLink::kAttributesButReads);
}

void Announcement::Begin() {
  if (is_refused_ || !ModifiesAsAnnounced()) return;
  is_begun_ = true;
  rdmaemu_client_announce(announced_);
}

}  // namespace rdmaemu::rdmacm
