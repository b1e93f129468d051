#include "shim/layer/checks/objects.h"

namespace rdmaemu::layer::checks {

uint32_t NextSerial() {
  static uint32_t serial;
  return ++serial;
}

}  // namespace rdmaemu::layer::checks
