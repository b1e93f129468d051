// A forwarding library: it has a program's library's name and exports, and hands each call to the
// library behind it. Each export is one jump through a slot (forwards.py makes them); users of the
// layer (trace, device filter) put functions of theirs into slots. A slot without a user costs the
// jump.
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
  bool is_default;  // name@@version, which a linker and dlsym(3) take
};
extern const Forward kForwards[];
extern const unsigned kForwardCount;

// Loads the library whose path is the value of an environment variable, and points each slot at its
// function there. A function that it does not have answers `missing`. When the library cannot be
// loaded, says so on standard error; all functions answer `missing` then. Returns the handle.
void* LoadBehind(const char* variable, const char* soname, void (*missing)());

// The slot of the default version of a name; nullptr when there is none.
void** SlotOf(const char* name);

// Puts `function` into the slot of `name`; what was there before goes to `next`, which `function`
// calls. Call it while the library is loaded, in the order from the back to the front.
template <class Function>
void Intercept(const char* name, Function* function, Function** next) {
  void** const slot = SlotOf(name);
  if (slot == nullptr) return;
  *next = reinterpret_cast<Function*>(*slot);
  *slot = reinterpret_cast<void*>(function);
}

}  // namespace rdmaemu::layer
