// Descriptors that only this process makes ready.
#pragma once

namespace rdmaemu::embedded {

// Returns true if the descriptor is an eventfd, a disarmed timerfd, or an epoll of such
// descriptors. A child process that shares it, and a signal handler, may make it ready all the
// same. Returns false without /proc. Thread-safe.
bool IsInnerFd(int fd);

}  // namespace rdmaemu::embedded
