// Installs the recording functions of librdmacm.
#include "shim/layer/trace/install.h"
#include "shim/layer/trace/wrap.h"

namespace rdmaemu::layer::trace {

void InstallCm() {
#define VERBS(function, ...)
#define VALUE(function, ...)
#define CM(function, ...) Install<CallId::k_##function>();
#define HELPER(function)
#include "shim/layer/trace/calls.inc"
#undef VERBS
#undef VALUE
#undef CM
#undef HELPER
}

}  // namespace rdmaemu::layer::trace
