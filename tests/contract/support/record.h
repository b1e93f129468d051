// Tells the runner which connection management events a test has seen: docs/events.md is made of
// it. Off unless RDMA_TEST_RECORD is set.
#pragma once

#include "tests/contract/support/side.h"

namespace rdma_contract {

// One line on standard output. Side::NextEvent does it by itself; a test that calls
// rdma_get_cm_event on its own may do it too.
void RecordEvent(const EventCopy& event);

}  // namespace rdma_contract
