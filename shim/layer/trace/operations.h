// Inline functions of verbs.h call function pointers in an object, its operations. The layer
// replaces an object's operations when a call returns the object to the program. The originals are
// in a table of the layer. The layer changes nothing else in the object of the library behind.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <type_traits>

namespace rdmaemu::layer::trace {

// Copies of the operation tables of objects of one type, by the object's address. Entries are never
// freed. A new object at the address of a destroyed object reuses its entry. Thread-safe and
// lock-free: a forked child or a signal handler never finds a lock taken.
template <class Table>
class Originals {
 public:
  // Returns the entry of an object, or nullptr when the object was never adopted.
  static Table* Find(const void* object) {
    for (Entry* each = Bucket(object).load(std::memory_order_acquire); each != nullptr;
         each = each->next) {
      if (each->object == object) return &each->table;
    }
    return nullptr;
  }
  // Returns the entry of an object, and creates the entry when there is none. Returns nullptr when
  // there is no memory.
  static Table* FindOrMake(const void* object);

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

// Replaces the operations of an object that a call has just returned. Does nothing for results of
// other types.
void Adopt(ibv_context* context);
void Adopt(ibv_cq_ex* cq);
void Adopt(ibv_qp_ex* qp);
void Adopt(ibv_wq* wq);
void Adopt(ibv_dm* dm);
template <class T>
void Adopt(const T&) {}

}  // namespace rdmaemu::layer::trace
