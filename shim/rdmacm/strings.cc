// Names of events (rdma_event_str(3)).
#include "emulator/base/cm_event_names.h"
#include "shim/rdmacm/internal.h"

extern "C" const char* rdma_event_str(rdma_cm_event_type event) {
  return rdmaemu::CmEventName(static_cast<uint32_t>(event));
}
