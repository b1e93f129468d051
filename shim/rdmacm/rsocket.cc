// Sockets over RDMA (rsocket(7)) are not supported. Every call fails with EOPNOTSUPP, so that a
// program with a fallback uses its fallback.
#include <rdma/rsocket.h>
#include <sys/epoll.h>

#include <cerrno>

namespace {

int Unsupported() {
  errno = EOPNOTSUPP;
  return -1;
}

}  // namespace

extern "C" {

int rsocket(int, int, int) { return Unsupported(); }
int rbind(int, const sockaddr*, socklen_t) { return Unsupported(); }
int rlisten(int, int) { return Unsupported(); }
int raccept(int, sockaddr*, socklen_t*) { return Unsupported(); }
int rconnect(int, const sockaddr*, socklen_t) { return Unsupported(); }
int rshutdown(int, int) { return Unsupported(); }
int rclose(int) { return Unsupported(); }

ssize_t rrecv(int, void*, size_t, int) { return Unsupported(); }
ssize_t rrecvfrom(int, void*, size_t, int, sockaddr*, socklen_t*) { return Unsupported(); }
ssize_t rrecvmsg(int, msghdr*, int) { return Unsupported(); }
ssize_t rsend(int, const void*, size_t, int) { return Unsupported(); }
ssize_t rsendto(int, const void*, size_t, int, const sockaddr*, socklen_t) { return Unsupported(); }
ssize_t rsendmsg(int, const msghdr*, int) { return Unsupported(); }
ssize_t rread(int, void*, size_t) { return Unsupported(); }
ssize_t rreadv(int, const iovec*, int) { return Unsupported(); }
ssize_t rwrite(int, const void*, size_t) { return Unsupported(); }
ssize_t rwritev(int, const iovec*, int) { return Unsupported(); }

int rpoll(pollfd*, nfds_t, int) { return Unsupported(); }
// rdma-core 65 added this function.
int repoll_create(int flags);
int repoll_ctl(int set, int operation, int socket, epoll_event* event);
int repoll_wait(int set, epoll_event* events, int max_events, int timeout);
int repoll_create(int) { return Unsupported(); }
int repoll_ctl(int, int, int, epoll_event*) { return Unsupported(); }
int repoll_wait(int, epoll_event*, int, int) { return Unsupported(); }

int rselect(int, fd_set*, fd_set*, fd_set*, timeval*) { return Unsupported(); }

int rgetpeername(int, sockaddr*, socklen_t*) { return Unsupported(); }
int rgetsockname(int, sockaddr*, socklen_t*) { return Unsupported(); }
int rsetsockopt(int, int, int, const void*, socklen_t) { return Unsupported(); }
int rgetsockopt(int, int, int, void*, socklen_t*) { return Unsupported(); }
int rfcntl(int, int, ...) { return Unsupported(); }

off_t riomap(int, void*, size_t, int, int, off_t) { return Unsupported(); }
int riounmap(int, void*, size_t) { return Unsupported(); }
size_t riowrite(int, const void*, size_t, off_t, int) { return static_cast<size_t>(Unsupported()); }

}  // extern "C"
