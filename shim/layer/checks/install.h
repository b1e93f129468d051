// Puts the checks of each part of the API into the slots of a forwarding library.
#pragma once

#include <infiniband/verbs.h>

namespace rdmaemu::layer::checks {

using SlotOfName = void** (*)(const char* name);

void InstallIdCalls(SlotOfName slot_of);
void InstallEventCalls(SlotOfName slot_of);
void InstallVerbsCalls(SlotOfName slot_of);
void InstallQueueCalls(SlotOfName slot_of);
void InstallQpCalls(SlotOfName slot_of);
void InstallExtendedCalls(SlotOfName slot_of);

// Replaces the operations of a context that a call has just returned. Does nothing for nullptr.
void Adopt(ibv_context* context);

// Returns whether a thread acknowledged an RDMA CM event that another thread took. Within a
// Section.
bool HasAcknowledgingThreads();

// Reports the objects that were not destroyed. Call it once, at exit(3).
void CheckAtExit();

}  // namespace rdmaemu::layer::checks
