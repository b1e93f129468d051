// The doors of RDMA CM events and asynchronous events. Between the library and the program, rules
// change, delay or drop events.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

namespace rdmaemu::layer::faults {

using SlotOfName = void** (*)(const char* name);

void InstallAsyncEventDoor(SlotOfName slot_of);
void InstallCmEventDoor(SlotOfName slot_of);

}  // namespace rdmaemu::layer::faults
