// Options of the sockets that carry RoCEv2.
#pragma once

#include <sys/socket.h>

#include <cstddef>

namespace rdmaemu::runtime {

inline constexpr size_t kSocketBufferBytes = size_t{8} << 20;  // asked for; rmem_max bounds it

template <class T>
bool SetOption(int fd, int level, int name, const T& value) {
  return setsockopt(fd, level, name, &value, sizeof value) == 0;
}

inline void SetBufferSizes(int fd) {
  const int bytes = kSocketBufferBytes;
  // FORCE needs CAP_NET_ADMIN; without it rmem_max and wmem_max are the limit.
  if (!SetOption(fd, SOL_SOCKET, SO_RCVBUFFORCE, bytes))
    SetOption(fd, SOL_SOCKET, SO_RCVBUF, bytes);
  if (!SetOption(fd, SOL_SOCKET, SO_SNDBUFFORCE, bytes))
    SetOption(fd, SOL_SOCKET, SO_SNDBUF, bytes);
}

}  // namespace rdmaemu::runtime
