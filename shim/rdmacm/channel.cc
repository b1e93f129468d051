// Event channels (rdma_create_event_channel(3)): a counter's descriptor, which works with poll and
// epoll, and the host's handle. Also contains the function that calls the host.
#include <unistd.h>

#include "shim/rdmacm/internal.h"

namespace rdmaemu::rdmacm {

bool IsForked(const Channel& channel) {
  return rdmaemu_client_is_forked_from(channel.owner_pid) != 0;
}

int CallBytes(const Channel& channel, uint32_t command, const void* in, uint32_t in_size, void* out,
              uint32_t out_size) {
  if (IsForked(channel)) return EACCES;
  return rdmaemu_client_call(static_cast<uint32_t>(CallOp::kCmCommand) + command, in, in_size, out,
                             out_size, nullptr, nullptr, 0);
}

Channel* NewChannel(const Channel* beside) {
  auto* channel = Make<Channel>();
  if (channel == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  const CmCreateChannelIn in = {beside == nullptr ? 0 : beside->handle, 0};
  CmChannelOut out = {};
  const int error = rdmaemu_client_call(static_cast<uint32_t>(CallOp::kCmCreateChannel), &in,
                                        sizeof(in), &out, sizeof(out), nullptr, &channel->fd, 1);
  if (error != 0) {
    Free(channel);
    errno = error;
    return nullptr;
  }
  channel->handle = out.channel;
  channel->owner_pid = static_cast<uint32_t>(getpid());
  return channel;
}

}  // namespace rdmaemu::rdmacm

extern "C" {

rdma_event_channel* rdma_create_event_channel() { return rdmaemu::rdmacm::NewChannel(nullptr); }

void rdma_destroy_event_channel(rdma_event_channel* channel) {
  using namespace rdmaemu;
  if (channel == nullptr) return;
  rdmacm::Channel& ours = rdmacm::Private(channel);
  // A forked child only closes its copy of the descriptor, because the channel belongs to its
  // parent.
  if (!rdmacm::IsForked(ours)) {
    HandleIn in = {ours.handle, 0};
    rdmacm::Uninterrupted([&] {
      return rdmaemu_client_call(static_cast<uint32_t>(CallOp::kCmDestroyChannel), &in, sizeof(in),
                                 nullptr, 0, nullptr, nullptr, 0);
    });
  }
  rdmaemu_client_close_counter(ours.fd);
  rdmacm::Free(&ours);
}

}  // extern "C"
