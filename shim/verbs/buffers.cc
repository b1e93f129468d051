// Buffers that the library allocates (ibv_alloc_buf(3) of rdma-core 65), and registration by a
// struct of attributes (ibv_reg_mr_ex(3)). A buffer acts like ordinary memory, as on every device
// without memory encryption. If it can, the library shares it with the host (shared_buffers.h).

#include <sys/mman.h>
#include <unistd.h>

#include "shim/verbs/newer_abi.h"
#include "shim/verbs/objects.h"
#include "shim/verbs/shared_buffers.h"

using namespace rdmaemu::shim;
using newer::RegisterMr;

// Opaque to programs.
struct ibv_buf {
  SharedBuffer memory;
  size_t bytes;  // as requested
  ibv_pd* pd;
};

namespace {

// Returns true if the attributes name a range within the buffer, and nothing that only a DMA-buf
// has.
bool IsWithin(const ibv_buf& buffer, const ibv_pd* pd, const RegisterMr& request) {
  if (pd != buffer.pd || (request.fields & newer::kHasAddress) == 0) return false;
  if ((request.fields & (newer::kHasDescriptor | newer::kHasDescriptorOffset)) != 0) return false;
  const uint64_t begin = CookieOf(buffer.memory.begin), at = CookieOf(request.address);
  return at >= begin && at - begin <= buffer.bytes && request.length <= buffer.bytes - (at - begin);
}

}  // namespace

// The buffer starts at a page boundary. Its bytes are 0. Fails with EINVAL for size 0 and with
// ENOMEM.
RDMAEMU_EXPORT void* ibv_alloc_buf(ibv_pd* pd, size_t size, ibv_buf** buf) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (size == 0) return NullWith(EINVAL);
  if (size > SIZE_MAX - page) return NullWith(ENOMEM);
  ibv_buf* const buffer = New<ibv_buf>();
  if (buffer == nullptr) return nullptr;
  buffer->bytes = size;
  buffer->pd = pd;
  const size_t whole_pages = (size + page - 1) / page * page;
  if (!AllocateShared(pd->handle, whole_pages, buffer->memory)) {
    void* const memory =
        mmap(nullptr, whole_pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      free(buffer);
      return NullWith(ENOMEM);
    }
    buffer->memory.begin = static_cast<char*>(memory);
    buffer->memory.bytes = whole_pages;
  }
  *buf = buffer;
  return buffer->memory.begin;
}

RDMAEMU_EXPORT void ibv_free_buf(ibv_buf* buf) {
  if (buf == nullptr) return;
  FreeBuffer(buf->memory);
  free(buf);
}

RDMAEMU_EXPORT ibv_mr* ibv_reg_buf_mr(ibv_pd* pd, ibv_buf* buf, void* addr, size_t length,
                                      int access) {
  RegisterMr request{};
  request.length = length;
  request.access = access;
  request.fields = newer::kHasAddress | newer::kHasBuffer;
  request.address = addr;
  request.buffer = buf;
  return ibv_reg_mr_ex(pd, reinterpret_cast<ibv_mr_init_attr*>(&request));
}

// Exactly one of an address and a descriptor is required. Regions of DMA-bufs and DMA handles are
// not supported.
RDMAEMU_EXPORT ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* mr_init_attr) {
  const RegisterMr& request = newer::LayoutOf(mr_init_attr);
  const auto has = [&request](uint64_t field) { return (request.fields & field) != 0; };
  if ((request.fields & ~newer::kKnownFields) != 0) return NullWith(EOPNOTSUPP);
  if (has(newer::kHasBuffer) && !IsWithin(*request.buffer, pd, request)) return NullWith(EINVAL);
  if (has(newer::kHasAddress) == has(newer::kHasDescriptor)) return NullWith(EINVAL);
  if (has(newer::kHasDescriptor) || has(newer::kHasDmaHandle)) return NullWith(EOPNOTSUPP);
  if (has(newer::kHasDescriptorOffset)) return NullWith(EINVAL);
  const uint64_t iova = has(newer::kHasIova) ? request.iova : CookieOf(request.address);
  return ibv_reg_mr_iova2(pd, request.address, request.length, iova,
                          static_cast<unsigned>(request.access));
}

// No buffer of this library is a DMA-buf.
RDMAEMU_EXPORT int ibv_export_buf_dmabuf_fd(ibv_buf*) { return MinusOneWith(ENODATA); }
