// Whose code made a call: the program's, the layer's or that of the libraries behind the layer.
// Users of the layer chain, so the return address of an inner user's function is in the layer. Each
// function of a user therefore begins with a Caller. A Caller stores the outermost return address
// of the thread. A signal handler's calls change this address only while they run.
#pragma once

#define RDMAEMU_LAYER_SHARED extern __attribute__((visibility("default")))

// The layer's libibverbs.so.1 exports these. Its librdmacm.so.1 and modules use them from there.
extern "C" {
// The outermost return address of the call that the thread is in.
RDMAEMU_LAYER_SHARED
__attribute__((tls_model("initial-exec"))) __thread const void* rdmaemu_layer_caller;
// Returns whether a return address is the program's: outside the layer, its modules and the
// libraries behind it.
RDMAEMU_LAYER_SHARED bool rdmaemu_layer_is_program(const void* address);
// Returns whether a return address is in one of the layer's libraries or modules.
RDMAEMU_LAYER_SHARED bool rdmaemu_layer_is_layer(const void* address);
// Marks the library that contains `address` as not the program's. `is_layer`: it is a library or
// module of the layer. Not thread-safe: call it only in constructors.
RDMAEMU_LAYER_SHARED void rdmaemu_layer_add_library(const void* address, bool is_layer);
}

namespace rdmaemu::layer {

class Caller {
 public:
  // `return_address`: __builtin_return_address(0) of the user's function.
  explicit Caller(const void* return_address) : outer_(rdmaemu_layer_caller) {
    if (!rdmaemu_layer_is_layer(return_address)) rdmaemu_layer_caller = return_address;
  }
  ~Caller() { rdmaemu_layer_caller = outer_; }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  bool IsProgram() const { return rdmaemu_layer_is_program(rdmaemu_layer_caller); }

 private:
  const void* outer_;
};

// The call that the thread is in, from the view of one user of the layer. Some functions of the
// libraries end with a jump to another public function. For example, ibv_reg_mr jumps to
// ibv_reg_mr_iova2, and rdma_destroy_ep to rdma_destroy_id. The return address of the second
// function is then in the user's own code. `User`: any type of the user.
template <class User>
class PresentCall {
 public:
  PresentCall() : outer_(t_present_) { t_present_ = rdmaemu_layer_caller; }
  ~PresentCall() { t_present_ = outer_; }
  PresentCall(const PresentCall&) = delete;
  PresentCall& operator=(const PresentCall&) = delete;

  // Returns whether a library makes the call with this return address within the user's present
  // call. The call must have a Caller.
  static bool Contains(const void* return_address) {
    return t_present_ == rdmaemu_layer_caller && rdmaemu_layer_is_layer(return_address);
  }

 private:
  static inline thread_local const void* t_present_;
  const void* outer_;
};

}  // namespace rdmaemu::layer
