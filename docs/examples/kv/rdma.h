// Objects of libibverbs and librdmacm that are destroyed at the end of their scope, and errors that
// name the failed call.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

namespace kv {

class RdmaError : public std::runtime_error {
 public:
  RdmaError(const std::string& what, int error)
      : std::runtime_error(what + ": " + std::strerror(error)) {}
  explicit RdmaError(const std::string& what) : std::runtime_error(what) {}
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

template <auto kEnd>
struct Ends {
  template <class T>
  void operator()(T* object) const {
    kEnd(object);
  }
};
using EventChannel = std::unique_ptr<rdma_event_channel, Ends<rdma_destroy_event_channel>>;
using Id = std::unique_ptr<rdma_cm_id, Ends<rdma_destroy_id>>;
// Of an id that has a queue pair. The id outlives it.
using QueuePair = std::unique_ptr<rdma_cm_id, Ends<rdma_destroy_qp>>;
using Event = std::unique_ptr<rdma_cm_event, Ends<rdma_ack_cm_event>>;
using CompletionChannel = std::unique_ptr<ibv_comp_channel, Ends<ibv_destroy_comp_channel>>;
using CompletionQueue = std::unique_ptr<ibv_cq, Ends<ibv_destroy_cq>>;
using Memory = std::unique_ptr<ibv_mr, Ends<ibv_dereg_mr>>;

}  // namespace kv
