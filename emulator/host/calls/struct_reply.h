// Calls and replies whose bodies are structs of fixed size.
#pragma once

#include <cstring>
#include <span>

#include "emulator/host/calls/reply.h"

namespace rdmaemu {

// Copies the body of a call to `in`. Returns nullptr when the body has another size.
template <class In>
const In* As(std::span<const std::byte> body, In& in) {
  if (body.size() != sizeof in) return nullptr;
  std::memcpy(&in, body.data(), sizeof in);
  return &in;
}

template <class Out>
void Fill(Reply& reply, const Out& out) {
  reply.body.resize(sizeof out);
  std::memcpy(reply.body.data(), &out, sizeof out);
}

// `error` is a positive errno.
inline Reply FailedReply(int error) {
  Reply reply;
  reply.error = error;
  return reply;
}

}  // namespace rdmaemu
