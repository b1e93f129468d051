#include "tests/contract/support/transport.h"

#include <infiniband/verbs.h>

#include "tests/contract/support/environment.h"

namespace rdma_contract {

bool IsIwarp() {
  int count = 0;
  bool iwarp = false;
  ibv_device** list = ibv_get_device_list(&count);
  for (int i = 0; list != nullptr && i < count; ++i) {
    if (DeviceName() == ibv_get_device_name(list[i])) {
      iwarp = list[i]->transport_type == IBV_TRANSPORT_IWARP;
    }
  }
  if (list != nullptr) ibv_free_device_list(list);
  return iwarp;
}

}  // namespace rdma_contract
