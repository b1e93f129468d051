#include "shim/layer/trace/operations.h"

#include <stddef.h>
#include <sys/mman.h>

#include <new>

#include "shim/layer/trace/data_path.h"
#include "shim/layer/trace/wrap.h"

namespace rdmaemu::layer::trace {
namespace {

// Entries are allocated from pieces of this size. An entry that does not fit into the rest of a
// piece begins a new piece.
constexpr size_t kPieceBytes = 64 << 10;

struct Piece {
  std::atomic<size_t> used;
  alignas(16) char bytes[kPieceBytes - 16];
};
std::atomic<Piece*> g_piece;

void* Allocate(size_t bytes) {
  bytes = (bytes + 15) & ~size_t{15};
  for (;;) {
    Piece* piece = g_piece.load(std::memory_order_acquire);
    if (piece != nullptr) {
      const size_t at = piece->used.fetch_add(bytes);
      if (at + bytes <= sizeof piece->bytes) return piece->bytes + at;
    }
    void* const memory =
        mmap(nullptr, sizeof(Piece), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    if (!g_piece.compare_exchange_strong(piece, static_cast<Piece*>(memory))) {
      munmap(memory, sizeof(Piece));
    }
  }
}

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
    Table* const original = Originals<Table>::Find(OwnerOf<Table>(arguments...));
    if constexpr (kIsFast) {
      return FastCall<kId, R, A...>(original->*kMember, __builtin_return_address(0), arguments...);
    } else {
      return SlowCall<kId, R, A...>(original->*kMember, __builtin_return_address(0), arguments...);
    }
  }
};

// Stores `function` in `original`, then `replacement` in `function`. In this order another thread
// never calls `replacement` before it has its original. Does nothing when the object does not have
// the operation, or already has the replacement.
template <class F>
void Replace(F& function, F& original, F replacement) {
  if (function == nullptr || function == replacement) return;
  __atomic_store_n(&original, function, __ATOMIC_RELEASE);
  __atomic_store_n(&function, replacement, __ATOMIC_RELEASE);
}

// Returns whether a table has the member at `offset`. Only verbs_context varies: an older library
// has fewer members than our header, and a newer library has more. New members are at the front, so
// `sz` decides.
template <class Table>
bool Has(const Table&, size_t) {
  return true;
}
bool Has(const verbs_context& context, size_t offset) {
  return context.sz >= sizeof(verbs_context) - offset;
}

#define RDMAEMU_LAYER_REPLACE(member_table, member, is_fast)                                \
  if constexpr (std::is_same_v<Table, member_table>) {                                      \
    if (Has(table, offsetof(member_table, member))) {                                       \
      Replace(table.member, original->member,                                               \
              &Operation<Table, &member_table::member, CallId::k_##member_table##_##member, \
                         is_fast, decltype(table.member)>::Call);                           \
    }                                                                                       \
  }

// Replaces the operations in `table`, which is part of `object`.
template <class Table>
void AdoptTable(const void* object, Table& table) {
  Table* const original = Originals<Table>::FindOrMake(object);
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

template <class Table>
Table* Originals<Table>::FindOrMake(const void* object) {
  if (Table* const found = Find(object)) return found;
  void* const memory = Allocate(sizeof(Entry));
  if (memory == nullptr) return nullptr;
  auto* const entry = new (memory) Entry{object, nullptr, {}};
  std::atomic<Entry*>& bucket = Bucket(object);
  entry->next = bucket.load(std::memory_order_relaxed);
  while (!bucket.compare_exchange_weak(entry->next, entry, std::memory_order_release)) {
  }
  return &entry->table;
}

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
void Adopt(ibv_wq* wq) {
  if (wq != nullptr) AdoptTable(wq, *wq);
}
void Adopt(ibv_dm* dm) {
  if (dm != nullptr) AdoptTable(dm, *dm);
}

}  // namespace rdmaemu::layer::trace
