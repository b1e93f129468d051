// The door of calls. The rules decide whether a call fails, or waits before or after its effect.
#pragma once

#include <errno.h>

#include <tuple>
#include <type_traits>
#include <utility>

#include "shim/layer/caller.h"
#include "shim/layer/faults/ask.h"
#include "shim/layer/faults/objects.h"

namespace rdmaemu::layer::faults {

// How a function reports an errno: verbs return it (kErrno), other functions return -1 (kMinus).
enum class Report : uint8_t { kErrno, kMinus };

template <class R>
R FailedBy(Report report, int error) {
  errno = error;
  if constexpr (std::is_pointer_v<R>) {
    return nullptr;
  } else if constexpr (!std::is_void_v<R>) {
    return report == Report::kErrno ? error : -1;
  }
}

// Does the part of a call that the program expects even when the call fails. For most calls there
// is none.
template <class... A>
void Refuse(const A&...) {}
// A refused post stores its first work request in *bad.
template <class Object, class Wr, class Next>
requires std::is_same_v<Wr, ibv_send_wr> || std::is_same_v<Wr, ibv_recv_wr>
void Refuse(Object*, Wr* list, Wr** bad, Next) { *bad = list; }
// A refused ibv_wr_complete drops the requests and ends the list that ibv_wr_start began.
void Refuse(ibv_qp_ex* qp);

template <class First, class... Rest>
void Describe(MomentIn& moment, First first, Rest...) {
  if constexpr (std::is_pointer_v<First>) {
    if (first == nullptr) return;
  }
  SetObject(moment, first);
}
inline void Describe(MomentIn&) {}

struct Faults;
using WatchedCall = PresentCall<Faults>;

// Returns whether the rules at a call apply to a call with this return address.
inline bool Asks(CallNumber call, const Caller& caller, const void* return_address) {
  if (!IsWatched(call) || !caller.IsProgram()) return false;
  return !WatchedCall::Contains(return_address);
}

template <class R, class... A>
R Decided(CallNumber call, Report report, R (*next)(A...), A... arguments) {
  MomentIn moment{};
  moment.door = static_cast<uint32_t>(Door::kCall);
  moment.number = call;
  Describe(moment, arguments...);
  const WatchedCall watched;
  Asked asked(moment);
  asked.Mark(Injected::kCall);
  switch (asked.does()) {
    case Does::kFail:
      Refuse(arguments...);
      return FailedBy<R>(report, asked.answer().value);
    case Does::kFailAfter:
      (void)next(arguments...);
      return FailedBy<R>(report, asked.answer().value);
    case Does::kWaitBefore:
      asked.Await();
      return next(arguments...);
    case Does::kWaitAfter:
      break;
    default:
      return next(arguments...);
  }
  if constexpr (std::is_void_v<R>) {
    next(arguments...);
    asked.Await();
  } else {
    const R result = next(arguments...);
    asked.Await();
    return result;
  }
}

// Returns whether a call of the program fails with ENXIO because its id got DEVICE_REMOVAL. The
// kernel's calls fail in the same way. Such an id can still be destroyed and moved to another
// channel.
template <CallNumber kCall, class First, class... Rest>
bool IsRemoved(const Caller& caller, First first, Rest...) {
  if constexpr (std::is_same_v<First, rdma_cm_id*> && kCall != kCall_rdma_destroy_id &&
                kCall != kCall_rdma_migrate_id) {
    const IdState* const state = IdStates::Find(first);
    return state != nullptr && state->is_removed && caller.IsProgram();
  }
  return false;
}
template <CallNumber kCall>
bool IsRemoved(const Caller&) {
  return false;
}

// The replacement of a function of the ABI, and the function that it calls (`next`).
template <CallNumber kCall, Report kReport, class F>
struct CallDoor;
template <CallNumber kCall, Report kReport, class R, class... A>
struct CallDoor<kCall, kReport, R(A...)> {
  static inline R (*next)(A...);
  static R Call(A... arguments) {
    const Caller caller(__builtin_return_address(0));
    if (IsRemoved<kCall>(caller, arguments...)) return FailedBy<R>(kReport, ENXIO);
    if (!Asks(kCall, caller, __builtin_return_address(0))) return next(arguments...);
    return Decided<R, A...>(kCall, kReport, next, arguments...);
  }
};

}  // namespace rdmaemu::layer::faults
