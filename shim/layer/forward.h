// A forwarding library has the name and the exports of a library that programs link. A forwarding
// library forwards each call to that library, which is called the library behind. forwards.py
// generates each export as one jump through a slot. Users of the layer (trace, device filter) put
// their own functions into slots. A slot without a user costs only the jump.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#define RDMAEMU_LAYER_JUMP(index) "  endbr64\n  jmp *rdmaemu_layer_slots+8*" #index "(%rip)"
#elif defined(__aarch64__)
#define RDMAEMU_LAYER_JUMP(index)                         \
  "  hint #34\n  adrp x16, rdmaemu_layer_slots+8*" #index \
  "\n  ldr x16, [x16, #:lo12:rdmaemu_layer_slots+8*" #index "]\n  br x16"
#else
#error "forwards.py needs the jump of this processor"
#endif

extern "C" void* rdmaemu_layer_slots[];

namespace rdmaemu::layer {

struct Forward {
  const char* name;
  const char* version;
  bool is_default;  // name@@version, which a linker and dlsym(3) use
};
extern const Forward kForwards[];
extern const unsigned kForwardCount;

// Loads the library behind and sets each slot to the library's function of that name and version.
// The environment variable `variable` contains the library's path. `soname` is for the error
// message. Sets a slot to `missing` when the library lacks the function. When dlopen fails, prints
// an error to standard error, sets all slots to `missing` and returns nullptr. Otherwise returns
// the handle.
void* LoadBehind(const char* variable, const char* soname, void (*missing)());

// Returns the slot of the default version of a name, or nullptr when there is none.
void** SlotOf(const char* name);
// Returns the slot of a version of a name that is not the default version.
void** SlotOfVersion(const char* name, const char* version);

// Puts `function` into the slot of `name`, and the slot's previous function into `next`. `function`
// calls `next`. Does nothing when `name` has no slot. Not thread-safe: call Intercept only in the
// library's constructor. The user that intercepts last is called first. `version`: nullptr for the
// default version.
template <class Function>
void Intercept(const char* name, Function* function, Function** next,
               const char* version = nullptr) {
  void** const slot = version == nullptr ? SlotOf(name) : SlotOfVersion(name, version);
  if (slot == nullptr) return;
  *next = reinterpret_cast<Function*>(*slot);
  *slot = reinterpret_cast<void*>(function);
}

}  // namespace rdmaemu::layer
