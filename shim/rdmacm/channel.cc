// Event channels (rdma_create_event_channel(3)): a counter's descriptor, which works with poll and
// epoll, and the host's handle. Also contains the function that calls the host.
#include <stdlib.h>
#include <unistd.h>

#include <atomic>

#include "shim/rdmacm/internal.h"

namespace rdmaemu::rdmacm {
namespace {

// Channels by descriptor. Copies of a channel with a higher descriptor do not work.
constexpr int kBlocks = 1024, kChannelsInBlock = 1024;
using Block = std::atomic<Channel*>[kChannelsInBlock];
constinit std::atomic<Block*> g_blocks[kBlocks] = {};

bool IsInTable(int fd) { return fd >= 0 && fd < kBlocks * kChannelsInBlock; }

// Returns nullptr without memory.
std::atomic<Channel*>* PlaceOf(int fd) {
  std::atomic<Block*>& block = g_blocks[fd / kChannelsInBlock];
  Block* now = block.load(std::memory_order_acquire);
  if (now == nullptr) {
    auto* const made = static_cast<Block*>(calloc(1, sizeof(Block)));
    if (made == nullptr) return nullptr;
    if (block.compare_exchange_strong(now, made, std::memory_order_acq_rel)) {
      now = made;
    } else {
      free(made);
    }
  }
  return &(*now)[fd % kChannelsInBlock];
}

void Remember(Channel& channel) {
  if (!IsInTable(channel.fd)) return;
  std::atomic<Channel*>* const place = PlaceOf(channel.fd);
  if (place == nullptr) return;
  channel.known_as = channel.fd;
  place->store(&channel, std::memory_order_release);
}

// The program may have closed the descriptor, and another channel may have it.
void Forget(Channel& channel) {
  if (channel.known_as < 0) return;
  Channel* expected = &channel;
  PlaceOf(channel.known_as)->compare_exchange_strong(expected, nullptr);
}

}  // namespace

Channel* FindChannel(int fd) {
  if (!IsInTable(fd)) return nullptr;
  Block* const block = g_blocks[fd / kChannelsInBlock].load(std::memory_order_acquire);
  return block == nullptr ? nullptr
                          : (*block)[fd % kChannelsInBlock].load(std::memory_order_acquire);
}

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
  Remember(*channel);
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
  rdmacm::Forget(ours);
  rdmaemu_client_close_counter(channel->fd);
  rdmacm::Free(&ours);
}

}  // extern "C"
