// The functions that inline functions reach through an object: replaced in the object when a
// program is given it. The originals stay in a table of ours, so that the library behind finds its
// own object as it left it but for these pointers.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <type_traits>

namespace rdmaemu::layer::trace {

// Copies of the operation tables of objects of one type, by the object's address. Entries are never
// freed: a new object at an old address takes over the entry. Lock-free, so that a fork or a signal
// handler finds no lock taken.
template <class Table>
class Originals {
 public:
  // The entry of an object; nullptr when it was never adopted.
  static Table* Find(const void* object) {
    for (Entry* each = Bucket(object).load(std::memory_order_acquire); each != nullptr;
         each = each->next) {
      if (each->object == object) return &each->table;
    }
    return nullptr;
  }
  // The entry, made when there is none; nullptr without memory.
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

// Replaces the operations of an object that a call has just given. Other results are left alone.
void Adopt(ibv_context* context);
void Adopt(ibv_cq_ex* cq);
void Adopt(ibv_qp_ex* qp);
void Adopt(ibv_wq* wq);
void Adopt(ibv_dm* dm);
template <class T>
void Adopt(const T&) {}

}  // namespace rdmaemu::layer::trace
