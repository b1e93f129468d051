// An asynchronous rdma_getaddrinfo of an id (rdma_resolve_addrinfo(3)): a thread looks names up and
// tells the id by an INTERNAL event. It may outlive the id, so both hold it.
#pragma once

#include "shim/rdmacm/sync.h"
#include "shim/rdmacm/ucma_abi.h"

namespace rdmaemu::rdmacm {

struct Id;

struct Lookup {
  Mutex mutex;
  Id* id = nullptr;  // nullptr: it has gone, and nobody waits for the answer
  int holders = 0;
  bool done = false;
  char* node = nullptr;
  char* service = nullptr;
  rdma_addrinfo* hints = nullptr;
  rdma_addrinfo* info = nullptr;  // the answer
};

// The id goes: its lookup, if there is one, ends by itself.
void AbandonLookup(Id& id);
}  // namespace rdmaemu::rdmacm
