// A reply that is text without a terminating 0: JSON of a host's status or of its fault rules.
#pragma once

#include <cerrno>
#include <string_view>

#include "emulator/abi/calls.h"
#include "emulator/host/calls/reply.h"

namespace rdmaemu {

// Returns EMSGSIZE for a text that is too long for a reply.
inline Reply TextReply(std::string_view text) {
  Reply reply;
  if (text.size() > kMaxReplyBytes - sizeof(ReplyHeader)) {
    reply.error = EMSGSIZE;
    return reply;
  }
  const auto* const bytes = reinterpret_cast<const std::byte*>(text.data());
  reply.body.assign({bytes, text.size()});
  return reply;
}

}  // namespace rdmaemu
