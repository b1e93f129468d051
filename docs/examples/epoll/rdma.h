// Objects of libibverbs and librdmacm that are destroyed at the end of their scope, and errors that
// name the failed call.
#pragma once

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

namespace shout {

struct RdmaError : std::runtime_error {
  using runtime_error::runtime_error;
  RdmaError(const std::string& call, int error)
      : std::runtime_error(call + ": " + std::strerror(error)) {}
};

// For calls that return -1 or NULL and set errno.
inline void Check(int result, const char* call) {
  if (result != 0) throw RdmaError(call, errno);
}
template <class T>
T* Check(T* result, const char* call) {
  if (result == nullptr) throw RdmaError(call, errno);
  return result;
}

template <auto kDestroy>
struct DestroyedBy {
  template <class T>
  void operator()(T* object) const {
    kDestroy(object);
  }
};
template <class T, auto kDestroy>
using Owned = std::unique_ptr<T, DestroyedBy<kDestroy>>;
using Id = Owned<rdma_cm_id, rdma_destroy_id>;
using QueuePair = Owned<rdma_cm_id, rdma_destroy_qp>;  // the id's

inline void MakeNonBlocking(int fd) {
  if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) throw RdmaError("fcntl", errno);
}

}  // namespace shout
