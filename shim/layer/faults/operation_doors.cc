#include "shim/layer/faults/operation_doors.h"

#include <stddef.h>

#include "shim/layer/faults/call_door.h"
#include "shim/layer/faults/completion_doors.h"
#include "shim/layer/faults/kept.h"
#include "shim/layer/faults/memory_door.h"

namespace rdmaemu::layer::faults {
namespace {

struct User;

template <class T, class... A>
ibv_context* ContextOf(T* object, A...) {
  if constexpr (std::is_same_v<T, ibv_context>) {
    return object;
  } else {
    return object->context;
  }
}

template <class Table, auto kMember, CallNumber kCall, class F>
struct Operation;
template <class Table, auto kMember, CallNumber kCall, class R, class... A>
struct Operation<Table, kMember, kCall, R (*)(A...)> {
  static R Call(A... arguments) {
    const Caller caller(__builtin_return_address(0));
    Table* const original = Originals<User, Table>::Find(ContextOf(arguments...));
    R (*const next)(A...) = original->*kMember;
    const bool asks = Asks(kCall, caller, __builtin_return_address(0));
    const R result =
        asks ? Decided<R, A...>(kCall, Report::kErrno, next, arguments...) : next(arguments...);
    Created(result);
    if constexpr (kCall == kCall_ibv_context_ops_req_notify_cq) {
      if (result == 0) SetArmed(std::get<0>(std::forward_as_tuple(arguments...)), true);
    }
    return result;
  }
};

// Rules at the call decide first, then those at the request's memory.
template <auto kMember, CallNumber kCall, class Object, class Wr>
int Post(Object* object, Wr* list, Wr** bad) {
  using Next = int (*)(Object*, Wr*, Wr**);
  const Caller caller(__builtin_return_address(0));
  const Next next = Originals<User, ibv_context_ops>::Find(object->context)->*kMember;
  if (!caller.IsProgram()) return next(object, list, bad);
  if (!IsWatched(kCall)) return PostChecked(object, list, bad, next);
  return Decided<int, Object*, Wr*, Wr**, Next>(kCall, Report::kErrno, PostChecked, object, list,
                                                bad, next);
}

int PollCq(ibv_cq* cq, int count, ibv_wc* out) {
  const Caller caller(__builtin_return_address(0));
  const PollCqFunction next = Originals<User, ibv_context_ops>::Find(cq->context)->poll_cq;
  if (!caller.IsProgram()) return next(cq, count, out);
  if (!IsWatched(kCall_ibv_context_ops_poll_cq)) return PollKept(cq, count, out, next);
  return Decided<int, ibv_cq*, int, ibv_wc*, PollCqFunction>(
      kCall_ibv_context_ops_poll_cq, Report::kMinus, PollKept, cq, count, out, next);
}

template <class Table, auto kMember, CallNumber kCall>
void ReplaceIn(Table& table, Table& original) {
  using F = std::remove_reference_t<decltype(table.*kMember)>;
  if constexpr (kCall == kCall_ibv_context_ops_poll_cq) {
    Replace(table.*kMember, original.*kMember, static_cast<F>(PollCq));
  } else if constexpr (kCall == kCall_ibv_context_ops_post_send ||
                       kCall == kCall_ibv_context_ops_post_recv ||
                       kCall == kCall_ibv_context_ops_post_srq_recv) {
    Replace(table.*kMember, original.*kMember, static_cast<F>(Post<kMember, kCall>));
  } else {
    Replace(table.*kMember, original.*kMember, &Operation<Table, kMember, kCall, F>::Call);
  }
}

template <class Table>
void AdoptTable(ibv_context* context, Table& table) {
  Table* const original = Originals<User, Table>::FindOrMake(context);
  if (original == nullptr) return;
#define CALL(function, subject)
#define OPERATION(member_table, member, subject)                                                  \
  if constexpr (std::is_same_v<Table, member_table>) {                                            \
    if (HasMember(table, offsetof(member_table, member))) {                                       \
      ReplaceIn<Table, &member_table::member, kCall_##member_table##_##member>(table, *original); \
    }                                                                                             \
  }
#include "shim/layer/faults/calls.inc"
#undef CALL
#undef OPERATION
}

}  // namespace

void Adopt(ibv_context* context) {
  if (context == nullptr) return;
  AdoptTable(context, context->ops);
  if (verbs_context* const extended = verbs_get_ctx(context)) AdoptTable(context, *extended);
}

}  // namespace rdmaemu::layer::faults
