// The connection's use of announced calls (announcement.h).
#pragma once

#include <cstdint>

namespace rdmaemu::client {

struct AnnouncedReply {
  int error;  // positive errno
  const void* bytes;
  uint32_t size;
};
// Returns true, and the reply, if the thread has announced this call and the host has executed it.
// The first announced call sends all of them. The reply is valid until the thread's next call.
bool TakeAnnounced(uint32_t op, const void* in, uint32_t in_size, AnnouncedReply& reply);

// connection.cc: makes the call kSequence. Returns how many bytes of `out` were filled. Returns 0
// when the host executes no sequences now, or when the call failed.
uint32_t SendSequence(const void* in, uint32_t in_size, void* out, uint32_t out_size);

// connection.cc: takes the event that the host offers on this channel (abi/process_page.h). Returns
// as SendSequence. Returns 0 when there is no such offer.
uint32_t TakeOfferedEvent(uint32_t channel, uint32_t devices, void* out, uint32_t out_size);

}  // namespace rdmaemu::client
