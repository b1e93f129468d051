#include "shim/layer/caller.h"

#include <link.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace {

// The layer's two libraries and its modules, or the two libraries behind.
constexpr int kMaxLibraries = 8;

class CodeRanges {
 public:
  void Add(uintptr_t begin, uintptr_t end) {
    const int count = count_.load(std::memory_order_relaxed);
    if (count == kMaxLibraries) return;
    ranges_[count] = {begin, end};
    count_.store(count + 1, std::memory_order_release);
  }
  bool Contain(const void* address) const {
    const auto at = reinterpret_cast<uintptr_t>(address);
    const int count = count_.load(std::memory_order_acquire);
    for (int i = 0; i < count; i++) {
      if (at - ranges_[i].begin < ranges_[i].end - ranges_[i].begin) return true;
    }
    return false;
  }

 private:
  struct Range {
    uintptr_t begin, end;
  };
  Range ranges_[kMaxLibraries];
  std::atomic<int> count_;
};

CodeRanges g_layer, g_behind;

struct Added {
  uintptr_t address;
  bool is_layer;
};

int AddCode(dl_phdr_info* info, size_t, void* data) {
  const auto& added = *static_cast<const Added*>(data);
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    if (added.address < begin || added.address >= begin + part.p_memsz) continue;
    (added.is_layer ? g_layer : g_behind).Add(begin, begin + part.p_memsz);
    return 1;
  }
  return 0;
}

}  // namespace

__thread const void* rdmaemu_layer_caller;

bool rdmaemu_layer_is_program(const void* address) {
  return !g_layer.Contain(address) && !g_behind.Contain(address);
}

bool rdmaemu_layer_is_layer(const void* address) { return g_layer.Contain(address); }

void rdmaemu_layer_add_library(const void* address, bool is_layer) {
  Added added{reinterpret_cast<uintptr_t>(address), is_layer};
  dl_iterate_phdr(AddCode, &added);
}
