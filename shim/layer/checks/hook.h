// Replaces a library's function by a check of its calls.
//
// A check is a struct that is made for one call. Its functions Before and After get the call's
// arguments. After also gets the result, as its first argument. Before returns false when the call
// must not be made, because the library would use freed memory. Checks also see the libraries' own
// calls, with `is_programs` false, and must not report these.
#pragma once

#include <errno.h>

#include <string_view>
#include <type_traits>

#include "shim/layer/caller.h"
#include "shim/layer/checks/objects.h"
#include "shim/layer/module.h"

namespace rdmaemu::layer::checks {

struct Checks;
using CheckedCall = PresentCall<Checks>;

// While an OwnCall exists, calls of the thread are the module's own. They are neither recorded nor
// checked by rules.
class OwnCall {
 public:
  OwnCall() : outer_(rdmaemu_layer_caller) {
    rdmaemu_layer_caller = reinterpret_cast<const void*>(&TextOf);
  }
  ~OwnCall() { rdmaemu_layer_caller = outer_; }
  OwnCall(const OwnCall&) = delete;
  OwnCall& operator=(const OwnCall&) = delete;

 private:
  const void* outer_;
};

struct Check {
  bool is_programs = false;
  template <class... A>
  bool Before(A...) {
    return true;
  }
  template <class... A>
  void After(A...) {}
};

// The result that a check returns instead of making the call.
template <class R>
R RefusedResult(std::string_view call) {
  errno = EINVAL;
  if constexpr (std::is_pointer_v<R>) {
    return nullptr;
  } else if constexpr (!std::is_void_v<R>) {
    return static_cast<R>(call.starts_with("rdma_") || call.starts_with("ibv_get_") ? -1 : EINVAL);
  }
}

template <class OneCheck, class F>
struct Hook;
template <class OneCheck, class R, class... A>
struct Hook<OneCheck, R(A...)> {
  static inline R (*next)(A...);
  static R Call(A... arguments) { return Checked(next, __builtin_return_address(0), arguments...); }
  static R Checked(R (*function)(A...), const void* return_address, A... arguments) {
    const Caller caller(return_address);
    OneCheck check;
    check.is_programs = caller.IsProgram() && !CheckedCall::Contains(return_address);
    if (check.is_programs) CheckHandler(OneCheck::kCall);
    if (!check.Before(arguments...)) return RefusedResult<R>(OneCheck::kCall);
    const CheckedCall present;
    if constexpr (std::is_void_v<R>) {
      CallLibrary(function, arguments...);
      const int error = errno;
      check.After(arguments...);
      errno = error;
    } else {
      const R result = CallLibrary(function, arguments...);
      const int error = errno;
      check.After(result, arguments...);
      errno = error;
      return result;
    }
  }

 private:
  static R CallLibrary(R (*function)(A...), A... arguments) {
    const LibraryAccesses accesses;
    return function(arguments...);
  }
};

using SlotOfName = void** (*)(const char* name);

template <class OneCheck, class F>
void Install(SlotOfName slot_of) {
  using TheHook = Hook<OneCheck, F>;
  InterceptBy(slot_of, OneCheck::kCall, &TheHook::Call, &TheHook::next);
}

// The function that the layer would call. This function belongs to a module or to the library
// behind this one.
template <class F>
F* Next(SlotOfName slot_of, const char* name) {
  void** const slot = slot_of(name);
  return slot == nullptr ? nullptr : reinterpret_cast<F*>(*slot);
}

// Creates an object in the table after the call that created it. The caller must hold no Section.
template <class T, class Function>
void Made(const Check& check, const char* call, const void* address, Function set) {
  if (address == nullptr) return;
  const Site site = CallSite();
  const Section section;
  if (section) set(All<T>().Make(address, call, site, check.is_programs));
}
template <class T>
void Made(const Check& check, const char* call, const void* address) {
  Made<T>(check, call, address, [](T&) {});
}

// Returns whether a function that the layer does not see (mlx5dv_create_qp) may have created a
// verbs object at the address of a destroyed one. The first member of a live object is an open
// device. In a freed object the allocator's link is in this place.
template <class T>
bool SeemsRemade(const T* object) {
  if constexpr (requires { object->context; }) {
    return All<Context>().FindAlive(object->context) != nullptr;
  } else {
    return false;
  }
}

// The check of a call that destroys an object of type T. Derived checks call Begin in Before, and
// End in After.
template <class T>
struct DestroyCheck : Check {
  T* object = nullptr;
  uint32_t serial = 0;

  // Reports `rule` and returns false when the object was destroyed before.
  template <class Address>
  bool Begin(Rule rule, const char* call, const Address* address) {
    object = All<T>().Find(address);
    if (object == nullptr) return true;
    serial = object->serial;
    if (object->life == Life::kEnded) {
      if (is_programs && !SeemsRemade(address)) {
        Report(rule, call, object, nullptr, nullptr, "%s was destroyed before",
               NameOf(*object).c_str());
        return false;
      }
      object = nullptr;
      return true;
    }
    if (is_programs && object->generation != Generation() && !std::is_same_v<T, Id> &&
        !std::is_same_v<T, EventChannel>) {
      Report(Rule::kTHREAD_007, call, object, nullptr, nullptr,
             "a forked child destroys %s of its parent", NameOf(*object).c_str());
    }
    object->life = Life::kEnding;
    return true;
  }
  // Returns whether the object was destroyed.
  bool End(bool is_success) {
    if (object == nullptr || object->serial != serial) return false;
    object->life = is_success ? Life::kEnded : Life::kAlive;
    return is_success;
  }
};

}  // namespace rdmaemu::layer::checks
