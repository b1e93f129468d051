// Recognises descriptors that only this process makes ready.
#pragma once

namespace rdmaemu::embedded {

// Returns true if the descriptor is an eventfd, a disarmed timerfd, or an epoll of such
// descriptors. A signal handler, or a child process that shares the descriptor, may still make it
// ready. Returns false without /proc. Thread-safe.
bool IsInnerFd(int fd);

}  // namespace rdmaemu::embedded
