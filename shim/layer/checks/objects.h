// The table of a program's objects. Only a thread that has a Section may use the table.
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

#include "shim/layer/checks/sample.h"
#include "shim/layer/checks/section.h"
#include "shim/layer/checks/watch.h"

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
  bool is_programs = false;  // the program created it, not a library
  Life life = Life::kAlive;
  Site site;
};

// The threads that are in a blocking call with an object.
class Waiters {
 public:
  void Add() { threads_.push_back(gettid()); }
  void Remove() { std::erase(threads_, gettid()); }
  // Returns the number of threads. Does not count threads that ended in the call (pthread_cancel).
  int Count() const {
    return static_cast<int>(std::ranges::count_if(
        threads_, [](pid_t thread) { return tgkill(getpid(), thread, 0) == 0; }));
  }

 private:
  std::vector<pid_t> threads_;
};

struct Mr;
using MrsByLkey = std::unordered_map<uint32_t, Mr*>;
struct Qp;
using QpsByNumber = std::unordered_map<uint32_t, Qp*>;

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
  uint32_t lkey = 0;
  // True when `begin`, `length` and `access` are known, because ibv_reg_mr created the region.
  bool is_plain = false;
  bool is_direct = false;  // plain, and its addresses are those of the program's memory
  uint64_t begin = 0, length = 0;
  unsigned access = 0;
  uint32_t in_flight = 0;  // SGEs of posted work
};
struct CompChannel : Object {
  static constexpr const char* kKind = "comp_channel";
  Waiters waiting;  // in ibv_get_cq_event
};
struct Cq : Object {
  static constexpr const char* kKind = "cq";
  const void* channel = nullptr;
  bool has_qp_num = true;         // its completions name their queue pair
  uint64_t taken = 0, acked = 0;  // completion events
  pthread_t taker = {};           // thread that took the last event
  uint64_t polls = 0, signalled = 0;
  uint32_t in_flight = 0;   // the most completions that posted work may still produce
  uint32_t size = 0;        // the queue's capacity
  bool is_polling = false;  // between ibv_start_poll and ibv_end_poll
  pthread_t poller = {};    // thread of the last ibv_start_poll
  bool is_polled_since_event = false;
  // The program called ibv_req_notify_cq last after a poll, while work was in flight, and nothing
  // has happened since then.
  bool is_armed_late = false;
};
struct Srq : Object {
  static constexpr const char* kKind = "srq";
  const void* pd = nullptr;
  ibv_srq_attr attr{};
};
struct Ah : Object {
  static constexpr const char* kKind = "ah";
  const void* pd = nullptr;
};

// Work that was posted and is not known to be completed.
struct Work {
  static constexpr int kMaxMrs = 3;
  struct Use {
    Mr* mr;
    uint32_t serial;
  };
  Use uses[kMaxMrs];
  uint8_t count = 0;
  bool is_signalled = false;
  Sample* sample = nullptr;  // owned; freed with the work
  Watch* watch = nullptr;    // ends with the work
};
class WorkRing {
 public:
  bool is_empty() const { return count_ == 0; }
  size_t count() const { return count_; }
  Work& operator[](size_t index) { return works_[(begin_ + index) & (works_.size() - 1)]; }
  Work& Push() {
    if (count_ == works_.size()) Grow();
    return (*this)[count_++] = Work{};
  }
  Work& front() { return (*this)[0]; }
  void Pop() {
    begin_++;
    count_--;
  }
  Work& back() { return (*this)[count_ - 1]; }
  void PopBack() { count_--; }

 private:
  void Grow() {
    std::vector<Work> larger(works_.empty() ? 16 : works_.size() * 2);
    for (size_t i = 0; i < count_; i++) larger[i] = (*this)[i];
    works_.swap(larger);
    begin_ = 0;
  }
  std::vector<Work> works_;
  size_t begin_ = 0, count_ = 0;
};

struct Qp : Object {
  static constexpr const char* kKind = "qp";
  const void *pd = nullptr, *context = nullptr, *srq = nullptr;
  Cq *send_cq = nullptr, *recv_cq = nullptr;
  const MrsByLkey* mrs = nullptr;
  uint32_t qp_num = 0;
  ibv_qp_type type{};
  ibv_qp_cap cap{};
  bool has_caps = false;
  bool signals_all = false;
  // True while all posts and completions are seen, and none has failed.
  bool is_tracked = false;
  bool could_be_tracked = false;
  int max_rd_atomic = -1;      // -1: unknown
  uint64_t unsignalled = 0;    // in `sends`
  uint64_t sends_seen = 0;     // sends that could be sampled
  uint64_t receives_seen = 0;  // receives that could be watched
  bool has_posted_receives = false;
  bool is_accepted_without_receives = false;
  WorkRing sends, receives;
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

uint32_t NextSerial();

// Objects of one type by address. An object stays in the table until another object is created at
// its address. The checks thus detect the use of a destroyed object. Pointers to objects stay
// valid.
template <class T>
class Table {
 public:
  // Returns nullptr when the address was never seen.
  T* Find(const void* address) {
    const auto found = objects_.find(address);
    if (found == objects_.end() || found->second.life == Life::kUnseen) return nullptr;
    return &found->second;
  }
  // Records that a library has created an object at this address.
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

// The regions and queue pairs of a device.
MrsByLkey& MrsOf(const void* context);
QpsByNumber& QpsOf(const void* context);

// StopTracking ends the tracking of a queue pair. ForgetWork drops the queue pair's posted work.
void StopTracking(Qp& qp);
void ForgetWork(Qp& qp);
// CompleteSend records that a send is completed, or all sends before a signalled one.
// CompleteReceive records that a receive is completed. `is_programs`: also reports changes of the
// sends' memory and accesses to the receives' memory.
void CompleteSend(Qp& qp, bool is_programs);
void CompleteReceive(Qp& qp, bool is_programs);
// Remove the last recorded work, which was not posted.
void UndoSend(Qp& qp);
void UndoReceive(Qp& qp);

}  // namespace rdmaemu::layer::checks
