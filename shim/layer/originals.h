// Inline functions of verbs.h call function pointers in an object, its operations. A user of the
// layer replaces an object's operations when a call returns the object to the program. The user
// stores the previous operations. Users chain: a stored operation may be another user's function.
#pragma once

#include <infiniband/verbs.h>
#include <stddef.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <new>
#include <type_traits>

#include "shim/layer/caller.h"

namespace rdmaemu::layer {

// Memory for a table's entries, in pieces of one mapping. Never freed. Thread-safe and lock-free.
template <class User>
class EntryMemory {
 public:
  // Returns nullptr when there is no memory. `bytes` is at most kPieceBytes - 16.
  static void* Allocate(size_t bytes) {
    bytes = (bytes + 15) & ~size_t{15};
    for (;;) {
      Piece* piece = piece_.load(std::memory_order_acquire);
      if (piece != nullptr) {
        const size_t at = piece->used.fetch_add(bytes);
        if (at + bytes <= sizeof piece->bytes) return piece->bytes + at;
      }
      void* const memory =
          mmap(nullptr, sizeof(Piece), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) return nullptr;
      if (!piece_.compare_exchange_strong(piece, static_cast<Piece*>(memory))) {
        munmap(memory, sizeof(Piece));
      }
    }
  }

 private:
  static constexpr size_t kPieceBytes = 64 << 10;
  struct Piece {
    std::atomic<size_t> used;
    alignas(16) char bytes[kPieceBytes - 16];
  };
  static inline std::atomic<Piece*> piece_;
};

// One user's copies of the operation tables of objects of one type, by the object's address. `User`
// is any type of the user. Entries are never freed. A new object at the address of a destroyed
// object reuses its entry. Thread-safe and lock-free: a forked child or a signal handler never
// finds a lock taken.
template <class User, class Table>
class Originals {
 public:
  // Returns the entry of an object. Returns nullptr when the object was never adopted.
  static Table* Find(const void* object) {
    for (Entry* each = Bucket(object).load(std::memory_order_acquire); each != nullptr;
         each = each->next) {
      if (each->object == object) return &each->table;
    }
    return nullptr;
  }
  // Returns the entry of an object, and creates the entry when there is none. Returns nullptr when
  // there is no memory.
  static Table* FindOrMake(const void* object) {
    if (Table* const found = Find(object)) return found;
    void* const memory = EntryMemory<User>::Allocate(sizeof(Entry));
    if (memory == nullptr) return nullptr;
    auto* const entry = new (memory) Entry{object, nullptr, {}};
    std::atomic<Entry*>& bucket = Bucket(object);
    entry->next = bucket.load(std::memory_order_relaxed);
    while (!bucket.compare_exchange_weak(entry->next, entry, std::memory_order_release)) {
    }
    return &entry->table;
  }

 private:
  struct Entry {
    const void* object;
    Entry* next;
    Table table;
  };
  static constexpr size_t kBuckets = 4096;

  static std::atomic<Entry*>& Bucket(const void* object) {
    const auto address = reinterpret_cast<uintptr_t>(object);
    return buckets_[(address >> 5 ^ address >> 17) % kBuckets];
  }
  static inline std::atomic<Entry*> buckets_[kBuckets];
};

// Stores `function` in `original`, then `replacement` in `function`. In this order another thread
// never calls `replacement` before its original is stored. Does nothing when the object does not
// have the operation, or already has the replacement.
//
// ibv_qp_to_qp_ex returns the same object at each call. The object's operation may then be the
// replacement of an outer user, which calls this user's replacement. An inner user's replacement is
// the stored original. A new object at the address has the operation of the library or of the inner
// user.
template <class F>
void Replace(F& function, F& original, F replacement) {
  if (function == nullptr || function == replacement) return;
  if (original != nullptr && function != original &&
      rdmaemu_layer_is_layer(reinterpret_cast<const void*>(function))) {
    return;
  }
  __atomic_store_n(&original, function, __ATOMIC_RELEASE);
  __atomic_store_n(&function, replacement, __ATOMIC_RELEASE);
}

// Returns whether a table has the member at `offset`. Only the length of verbs_context varies. An
// older library has fewer members than our header, and a newer library has more. New members are at
// the front, so `sz` decides.
template <class Table>
bool HasMember(const Table&, size_t) {
  return true;
}
inline bool HasMember(const verbs_context& context, size_t offset) {
  return context.sz >= sizeof(verbs_context) - offset;
}

}  // namespace rdmaemu::layer
