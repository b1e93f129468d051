// Locks and memory without the C++ runtime. Every program loads this library. The library must not
// load a C++ runtime, because the program may have another one.
#pragma once

#include <pthread.h>

#include <cstdlib>
#include <new>
#include <utility>

#include "shim/client/cancellation.h"

namespace rdmaemu::rdmacm {

class Condition;

class Mutex {
 public:
  constexpr Mutex() = default;
  ~Mutex() { pthread_mutex_destroy(&mutex_); }
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

 private:
  friend class Condition;
  friend class MutexLock;
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

// While a thread holds a mutex, it is not cancelled, except in Condition::Wait.
class MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) : mutex_(mutex) { pthread_mutex_lock(&mutex_.mutex_); }
  ~MutexLock() { pthread_mutex_unlock(&mutex_.mutex_); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  friend class Condition;
  client::CancellationHeld held_;
  Mutex& mutex_;
};

// In forked children, unlocks a mutex that a thread of the parent may hold at fork(). What the
// mutex guards must be complete at each moment, because the child does not have that thread.
// `Which` returns the mutex. Call this before the mutex is first locked.
template <Mutex& (*Which)()>
void UnlockInChildren() {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, [] { pthread_atfork(nullptr, nullptr, [] { new (&Which()) Mutex; }); });
}

class Condition {
 public:
  constexpr Condition() = default;
  ~Condition() { pthread_cond_destroy(&condition_); }
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;

  void NotifyAll() { pthread_cond_broadcast(&condition_); }
  // This wait is a cancellation point. A cancelled thread releases the mutex.
  void Wait(MutexLock& lock) {
    pthread_mutex_t* const mutex = &lock.mutex_.mutex_;
    pthread_cleanup_push(Unlock, mutex);
    pthread_setcancelstate(lock.held_.before(), nullptr);
    pthread_cond_wait(&condition_, mutex);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    pthread_cleanup_pop(0);
  }

 private:
  static void Unlock(void* mutex) { pthread_mutex_unlock(static_cast<pthread_mutex_t*>(mutex)); }

  pthread_cond_t condition_ = PTHREAD_COND_INITIALIZER;
};

// Creates an object in zeroed memory of the C library. Returns nullptr when there is no memory.
template <class T>
T* Make() {
  void* memory = std::calloc(1, sizeof(T));
  return memory == nullptr ? nullptr : ::new (memory) T;
}
template <class T>
void Free(T* object) {
  if (object == nullptr) return;
  object->~T();
  std::free(object);
}

// Frees its object at the end of its scope.
template <class T>
class Owned {
 public:
  explicit Owned(T* object) : object_(object) {}
  ~Owned() { Free(object_); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  T* Release() { return std::exchange(object_, nullptr); }

 private:
  T* object_;
};

}  // namespace rdmaemu::rdmacm
