// Announces the calls that a function of this library is about to make, so that they need one
// message together (shim/client/announcement.h). The function then makes its calls as usual.
#pragma once

#include <cstdint>

#include "shim/rdmacm/internal.h"

namespace rdmaemu::rdmacm {

class Announcement {
 public:
  // The call that sends the announced ones.
  enum class First { kCreateQp, kModifyQp, kInitQpAttr, kGetEvent };
  explicit Announcement(First first);
  // The announced calls end with the object.
  ~Announcement();
  Announcement(const Announcement&) = delete;
  Announcement& operator=(const Announcement&) = delete;

  template <class Command>
  void AddCommand(const Id& id, uint32_t command, const Command& in) {
    AddCommand(ChannelOf(id), command, in, StepLink::kNone, StepGift::kNothing);
  }
  // The queries that rdma_get_cm_event makes, by the event.
  void AddQueries(const Channel& channel);
  // One transition with the host's attributes: INIT_QP_ATTR and MODIFY_QP. `attributes` are those
  // that the transition does not take from the host (`link`). `qp` 0: the queue pair that the first
  // call creates.
  void AddMove(const Id& id, uint32_t qp, const ibv_qp_attr& attributes, StepLink link);
  // RTR and RTS as ModifyQpToReadyToReceive and ModifyQpToReadyToSend make them.
  void AddMovesToReady(const Id& id, uint8_t responder_resources, uint8_t initiator_depth);
  void Begin();

 private:
  template <class Command>
  void AddCommand(const Channel& channel, uint32_t command, const Command& in, StepLink link,
                  StepGift gift) {
    const CmCall<Command> call = {channel.handle, 0, in};
    Add(static_cast<uint32_t>(CallOp::kCmCommand) + command, &call, sizeof(call), link, gift);
  }
  void Add(uint32_t op, const void* in, size_t size, StepLink link, StepGift gift);

  const First first_;
  // Not on the stack: threads of programs may have 16 KiB for all their calls.
  rdmaemu_announcement* announced_ = nullptr;
  bool is_begun_ = false;
  bool is_refused_ = false;  // there was no memory, or no room for a step
};

}  // namespace rdmaemu::rdmacm
