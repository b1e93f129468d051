// A library that a program loads by dlopen after a host was opened. It waits by the C library's
// functions and is not linked with rdmaemu.
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

extern "C" {

int LatePoll(int fd) {
  pollfd readable{fd, POLLIN, 0};
  return poll(&readable, 1, -1);
}

int LateEpoll(int fd) {
  const int loop = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{};
  event.events = EPOLLIN;
  epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event);
  const int ready = epoll_wait(loop, &event, 1, -1);
  close(loop);
  return ready;
}

int LateSelect(int fd) {
  fd_set in;
  FD_ZERO(&in);
  FD_SET(fd, &in);
  return select(fd + 1, &in, nullptr, nullptr, nullptr);
}

// Waits for a minute on a condition variable that nobody signals.
int LateCondition(int /*fd*/) {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t never = PTHREAD_COND_INITIALIZER;
  timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 60;
  pthread_mutex_lock(&mutex);
  const int result = pthread_cond_timedwait(&never, &mutex, &until);
  pthread_mutex_unlock(&mutex);
  return result;
}

int LateSleep(int /*fd*/) {
  const timespec minute{60, 0};
  return nanosleep(&minute, nullptr);
}

}  // extern "C"
