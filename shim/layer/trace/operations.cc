#include "shim/layer/trace/operations.h"

#include <stddef.h>

#include "shim/layer/trace/data_path.h"
#include "shim/layer/trace/wrap.h"

namespace rdmaemu::layer::trace {
namespace {

// Finds the object whose table contains an operation among the operation's arguments.
template <class Table, class First, class... A>
const void* OwnerOf(First first, A... rest) {
  if constexpr (!std::is_same_v<Table, ibv_context_ops> && !std::is_same_v<Table, verbs_context>) {
    if constexpr (std::is_same_v<First, Table*>) {
      return first;
    } else {
      return OwnerOf<Table>(rest...);
    }
  } else if constexpr (std::is_same_v<First, ibv_context*>) {
    return first;
  } else {
    return first->context;
  }
}

template <class Table, auto kMember, CallId kId, bool kIsFast, class F>
struct Operation;
template <class Table, auto kMember, CallId kId, bool kIsFast, class R, class... A>
struct Operation<Table, kMember, kId, kIsFast, R (*)(A...)> {
  static R Call(A... arguments) {
    Table* const original = Originals<Thread, Table>::Find(OwnerOf<Table>(arguments...));
    if constexpr (kIsFast) {
      return FastCall<kId, R, A...>(original->*kMember, __builtin_return_address(0), arguments...);
    } else {
      return SlowCall<kId, R, A...>(original->*kMember, __builtin_return_address(0), arguments...);
    }
  }
};

#define RDMAEMU_LAYER_REPLACE(member_table, member, is_fast)                                \
  if constexpr (std::is_same_v<Table, member_table>) {                                      \
    if (HasMember(table, offsetof(member_table, member))) {                                 \
      Replace(table.member, original->member,                                               \
              &Operation<Table, &member_table::member, CallId::k_##member_table##_##member, \
                         is_fast, decltype(table.member)>::Call);                           \
    }                                                                                       \
  }

// Replaces the operations in `table`, which is part of `object`.
template <class Table>
void AdoptTable(const void* object, Table& table) {
  Table* const original = Originals<Thread, Table>::FindOrMake(object);
  if (original == nullptr) return;
#define SLOW(table, member, name, ...) RDMAEMU_LAYER_REPLACE(table, member, false)
#define FAST(table, member, name, ...) RDMAEMU_LAYER_REPLACE(table, member, true)
#define FAST_VALUE(table, member, name, ...) RDMAEMU_LAYER_REPLACE(table, member, true)
#define OWN(table, member, name)
#include "shim/layer/trace/operations.inc"
#undef SLOW
#undef FAST
#undef FAST_VALUE
#undef OWN
  if constexpr (std::is_same_v<Table, ibv_context_ops>) {
    Replace(table.poll_cq, original->poll_cq, PollCq);
  }
  if constexpr (std::is_same_v<Table, ibv_cq_ex>) {
    Replace(table.start_poll, original->start_poll, StartPoll);
    Replace(table.next_poll, original->next_poll, NextPoll);
  }
}

}  // namespace

void Adopt(ibv_context* context) {
  if (context == nullptr || !rdmaemu_layer_is_tracing()) return;
  AdoptTable(context, context->ops);
  if (verbs_context* const extended = verbs_get_ctx(context)) AdoptTable(context, *extended);
}
void Adopt(ibv_cq_ex* cq) {
  if (cq != nullptr) AdoptTable(cq, *cq);
}
void Adopt(ibv_qp_ex* qp) {
  if (qp != nullptr) AdoptTable(qp, *qp);
}
void Adopt(ibv_qp* qp) {
  if (g_hashes_payloads && qp != nullptr) NoteQp(qp);
}
void Adopt(ibv_wq* wq) {
  if (wq != nullptr) AdoptTable(wq, *wq);
}
void Adopt(ibv_dm* dm) {
  if (dm != nullptr) AdoptTable(dm, *dm);
}

}  // namespace rdmaemu::layer::trace
