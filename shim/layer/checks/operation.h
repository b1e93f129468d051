// Replaces the operations in a table of an object by checks. Inline functions of verbs.h call
// through these tables.
#pragma once

#include <infiniband/verbs.h>
#include <stddef.h>

#include "shim/layer/checks/hook.h"
#include "shim/layer/originals.h"

namespace rdmaemu::layer::checks {

template <class Table>
using TablesOf = Originals<Checks, Table>;

// The object that holds the table of an operation, by the operation's first argument.
template <class Table, class First>
const void* HolderOf(First* first) {
  if constexpr (std::is_same_v<First, Table> || std::is_same_v<First, ibv_context>) {
    return first;
  } else {
    return first->context;
  }
}

template <class OneCheck, class Table, auto kMember, class F>
struct Operation;
template <class OneCheck, class Table, auto kMember, class R, class First, class... A>
struct Operation<OneCheck, Table, kMember, R (*)(First*, A...)> {
  static R Call(First* first, A... rest) {
    Table* const original = TablesOf<Table>::Find(HolderOf<Table>(first));
    return Hook<OneCheck, R(First*, A...)>::Checked(original->*kMember, __builtin_return_address(0),
                                                    first, rest...);
  }
};

template <class OneCheck, auto kMember, class Table>
void ReplaceIn(Table& table, Table& original) {
  using F = std::remove_reference_t<decltype(table.*kMember)>;
  Replace(table.*kMember, original.*kMember, &Operation<OneCheck, Table, kMember, F>::Call);
}

}  // namespace rdmaemu::layer::checks
