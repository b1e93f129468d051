#include "tests/contract/support/record.h"

#include <cstdio>

namespace rdma_contract {

void RecordEvent(const EventCopy& event) {
  if (!event.found || Variable("RDMA_TEST_RECORD").empty()) return;
  printf("@event {\"event\": \"%s\", \"status\": %d, \"private_data_len\": %u}\n",
         rdma_event_str(event.event), event.status, static_cast<unsigned>(event.private_data_len));
  fflush(stdout);
}

}  // namespace rdma_contract
