// Installs the recording functions of libibverbs.
#include "shim/layer/trace/install.h"
#include "shim/layer/trace/wrap.h"

namespace rdmaemu::layer::trace {

void InstallVerbs() {
#define VERBS(function, ...) Install<CallId::k_##function>();
#define VALUE(function, ...) Install<CallId::k_##function>();
#define CM(function, ...)
#define HELPER(function)
#include "shim/layer/trace/calls.inc"
#undef VERBS
#undef VALUE
#undef CM
#undef HELPER
#define OLD(function, ...) Install<CallId::k_old_##function>(kOldVersion);
#define OLD_VALUE(function, ...) Install<CallId::k_old_##function>(kOldVersion);
#include "shim/layer/trace/calls_1_0.inc"
#undef OLD
#undef OLD_VALUE
}

}  // namespace rdmaemu::layer::trace
