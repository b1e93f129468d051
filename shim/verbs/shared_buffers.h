// Buffers of ibv_alloc_buf(3) that this process shares with its host (emulator/abi/buffer_arena.h).
// To the program they act like private memory, also over fork(2): the fork handler makes each of
// them a private mapping with the same bytes, and the host then uses system calls.
//
// Each granule is mapped twice: shared at the address that the program gets, and private, without
// access, elsewhere. Before a fork the private mapping replaces the shared one by mremap(2). This
// is one step for other threads, and needs no descriptor.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rdmaemu::shim {

struct SharedBuffer {
  char* begin;
  size_t bytes;    // whole pages
  bool is_shared;  // false: private memory, which munmap(2) frees
  SharedBuffer *previous, *next;
};

// Fills `out` with zeroed memory of at least one page. `handle` is of any object of the host. `out`
// must stay at its address until FreeBuffer. Returns false if the memory must be ordinary, for
// example because a limit is reached. Thread-safe.
bool AllocateShared(uint32_t handle, size_t bytes, SharedBuffer& out);

// Frees shared or private memory. After this call the host reaches no byte of it. Thread-safe.
void FreeBuffer(SharedBuffer& buffer);

}  // namespace rdmaemu::shim
