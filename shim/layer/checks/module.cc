// The checks module (librdmaemu_checks.so): usage checks of a program's calls, on any libibverbs
// and librdmacm (docs/checks.md).
#include "shim/layer/module.h"

#include "shim/layer/checks/install.h"
#include "shim/layer/checks/section.h"

namespace rdmaemu::layer::checks {
namespace {

// Both libraries install the module, but a program may have only one of them.
void OpenOnce() {
  static bool is_open;
  if (is_open) return;
  is_open = true;
  OpenFindings();
  rdmaemu_layer_at_exit(CheckAtExit);
}

}  // namespace
}  // namespace rdmaemu::layer::checks

extern "C" {

__attribute__((visibility("default"))) void rdmaemu_module_install_verbs(
    void** (*slot_of)(const char*)) {
  using namespace rdmaemu::layer::checks;
  OpenOnce();
  InstallVerbsCalls(slot_of);
  InstallQueueCalls(slot_of);
  InstallQpCalls(slot_of);
  InstallExtendedCalls(slot_of);
}

__attribute__((visibility("default"))) void rdmaemu_module_install_cm(
    void** (*slot_of)(const char*)) {
  using namespace rdmaemu::layer::checks;
  OpenOnce();
  InstallIdCalls(slot_of);
  InstallEventCalls(slot_of);
}
}
