// What the checks remember of a program's objects. Use it only within a Section.
#pragma once

#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "shim/layer/checks/section.h"

namespace rdmaemu::layer::checks {

// kEnding: a call that destroys the object has begun. kUnseen: a library may have made another
// object at the address of the destroyed one.
enum class Life : uint8_t { kAlive, kEnding, kEnded, kUnseen };

struct Object {
  const void* address = nullptr;
  const char* kind = nullptr;
  const char* made_by = nullptr;
  uint32_t number = 0;  // of its kind, from 1
  uint32_t serial = 0;  // unique among all objects
  uint32_t generation = 0;
  bool is_programs = false;  // the program made it, not a library
  Life life = Life::kAlive;
  Site site;
};

// The threads that are in a blocking call with an object.
class Waiters {
 public:
  void Add() { threads_.push_back(gettid()); }
  void Remove() { std::erase(threads_, gettid()); }
  // Does not count threads that ended in the call (pthread_cancel).
  int Count() const {
    return static_cast<int>(std::ranges::count_if(
        threads_, [](pid_t thread) { return tgkill(getpid(), thread, 0) == 0; }));
  }

 private:
  std::vector<pid_t> threads_;
};

struct Context : Object {
  static constexpr const char* kKind = "context";
  Waiters waiting;  // in ibv_get_async_event
};
struct DeviceList : Object {
  static constexpr const char* kKind = "device_list";
};
struct Pd : Object {
  static constexpr const char* kKind = "pd";
};
struct Mr : Object {
  static constexpr const char* kKind = "mr";
  const void* pd = nullptr;
  const void* context = nullptr;
};
struct CompChannel : Object {
  static constexpr const char* kKind = "comp_channel";
  Waiters waiting;  // in ibv_get_cq_event
};
struct Cq : Object {
  static constexpr const char* kKind = "cq";
  const void* channel = nullptr;
  uint64_t taken = 0, acked = 0;  // completion events
  pthread_t taker = {};           // thread that took the last event
};
struct Srq : Object {
  static constexpr const char* kKind = "srq";
  const void* pd = nullptr;
};
struct Ah : Object {
  static constexpr const char* kKind = "ah";
  const void* pd = nullptr;
};

struct Qp : Object {
  static constexpr const char* kKind = "qp";
  const void *pd = nullptr, *context = nullptr, *srq = nullptr;
  ibv_qp_type type{};
};

struct EventChannel : Object {
  static constexpr const char* kKind = "event_channel";
  Waiters waiting;  // in rdma_get_cm_event
};
struct Id : Object {
  static constexpr const char* kKind = "id";
  const void* channel = nullptr;  // nullptr: synchronous
  bool is_request = false;        // of a CONNECT_REQUEST
  bool is_listening = false, has_address = false, has_route = false, was_connected = false;
  const char* answered_by = nullptr;
  bool is_rejected = false;
  int failed = -1;  // rdma_cm_event_type
  uint8_t initiator_depth = 0;
};
struct Event : Object {
  static constexpr const char* kKind = "event";
  rdma_cm_event_type type{};
  const void* owner = nullptr;  // id that waits for the acknowledgement
  const void* channel = nullptr;
  pthread_t taker = {};
};
struct AsyncEvent : Object {
  static constexpr const char* kKind = "async_event";
};

uint32_t NextSerial();

// Objects of one type by address. An object stays until another one is made at its address, so that
// the use of a destroyed object is known. Pointers to objects stay valid.
template <class T>
class Table {
 public:
  // Returns nullptr when the address was never seen.
  T* Find(const void* address) {
    const auto found = objects_.find(address);
    if (found == objects_.end() || found->second.life == Life::kUnseen) return nullptr;
    return &found->second;
  }
  // A library has made an object at this address.
  void Forget(const void* address) {
    if (T* const found = Find(address)) found->life = Life::kUnseen;
  }
  T* FindAlive(const void* address) {
    T* const found = Find(address);
    return found != nullptr && found->life == Life::kAlive ? found : nullptr;
  }
  T& Make(const void* address, const char* call, const Site& site, bool is_programs) {
    T& object = objects_[address];
    object = T{};
    object.address = address;
    object.kind = T::kKind;
    object.made_by = call;
    object.number = ++count_;
    object.serial = NextSerial();
    object.generation = Generation();
    object.is_programs = is_programs;
    object.site = site;
    return object;
  }
  template <class Function>
  void ForEachAlive(Function function) {
    for (auto& each : objects_) {
      if (each.second.life == Life::kAlive) function(each.second);
    }
  }

 private:
  std::unordered_map<const void*, T> objects_;
  uint32_t count_ = 0;
};

template <class T>
Table<T>& All() {
  static auto* const table = new Table<T>;
  return *table;
}

inline std::string NameOf(const Object& object) {
  return object.kind + std::to_string(object.number);
}

}  // namespace rdmaemu::layer::checks
