// An asynchronous rdma_getaddrinfo of an id (rdma_resolve_addrinfo(3)). A thread looks the names up
// and reports the result by an INTERNAL event. The thread may run longer than the id exists, so the
// thread and the id share the lookup.
#pragma once

#include "shim/rdmacm/sync.h"
#include "shim/rdmacm/ucma_abi.h"

namespace rdmaemu::rdmacm {

struct Id;

struct Lookup {
  Mutex mutex;
  Id* id = nullptr;  // nullptr: the id was destroyed, and no caller waits for the result
  int holders = 0;
  bool done = false;
  char* node = nullptr;
  char* service = nullptr;
  rdma_addrinfo* hints = nullptr;
  rdma_addrinfo* info = nullptr;  // the result
};

// Abandons the lookup of an id, if there is one. Its thread frees it later.
void AbandonLookup(Id& id);
}  // namespace rdmaemu::rdmacm
