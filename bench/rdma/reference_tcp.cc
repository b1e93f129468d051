// The cost of a connection without RDMA: TCP.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/rdma/reference.h"

namespace rdma_bench {
namespace {

int NewSocket() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  Require(fd >= 0, "socket");
  return fd;
}

}  // namespace

double TcpConnectFor(Control& control, const std::string& peer, double seconds) {
  control.Send(Order{.task = Task::kTcpAcceptAll});
  const sockaddr_in address = SocketAddress(peer, control.Receive<Report>().port);
  // Connections are reset instead of closed, so that no port stays in TIME_WAIT.
  const linger reset{1, 0};
  uint64_t connections = 0;
  const double begin = NowSeconds();
  double now = begin;
  for (; now - begin < seconds; now = NowSeconds(), connections++) {
    const int fd = NewSocket();
    Require(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0,
            "connect by TCP");
    char byte;
    // The server sends a byte after it has accepted.
    Require(recv(fd, &byte, 1, 0) == 1, "the byte of an accepted TCP connection");
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(fd);
  }
  control.Send(Order{.task = Task::kStop});
  control.Receive<Report>();
  return static_cast<double>(connections) / (now - begin);
}

void TcpAcceptAll(Control& control, const std::string& own) {
  const int listener = NewSocket();
  sockaddr_in address = SocketAddress(own, 0);
  socklen_t bytes = sizeof address;
  Require(bind(listener, reinterpret_cast<sockaddr*>(&address), bytes) == 0, "bind");
  Require(listen(listener, 1) == 0, "listen");
  Require(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &bytes) == 0, "getsockname");
  control.Send(Report{.port = ntohs(address.sin_port)});
  for (;;) {
    pollfd ready[] = {{listener, POLLIN, 0}, {control.fd(), POLLIN, 0}};
    Require(poll(ready, 2, -1) > 0, "poll");
    if (ready[0].revents != 0) {
      const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      Require(fd >= 0, "accept");
      const char byte = 1;
      Require(send(fd, &byte, 1, MSG_NOSIGNAL) == 1, "sending on a TCP connection");
      close(fd);
    } else if (ready[1].revents != 0) {
      control.Receive<Order>();
      break;
    }
  }
  close(listener);
  control.Send(Report{});
}

}  // namespace rdma_bench
