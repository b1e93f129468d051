#include "shim/layer/forward.h"
#include "shim/layer/trace/install.h"
#include "shim/layer/trace/wrap.h"

namespace rdmaemu::layer::trace {
namespace {

template <CallId kId>
void Install() {
  Intercept(Row<kId>::kSymbol, &Traced<kId>::Call, &Traced<kId>::next);
}

}  // namespace

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
}

}  // namespace rdmaemu::layer::trace
