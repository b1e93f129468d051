#include "bench/rdma/control.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "bench/rdma/base.h"

namespace rdma_bench {
namespace {

constexpr int kConnectPatience_ms = 20000;
constexpr int kConnectPause_ms = 20;

sockaddr_un UnixAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    throw Failure("the control socket's path is too long: " + path);
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

int NewSocket() {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  Require(fd >= 0, "socket");
  return fd;
}

}  // namespace

Control Control::Serve(const std::string& path) {
  const sockaddr_un address = UnixAddress(path);
  const int listener = NewSocket();
  Require(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0,
          "bind to " + path);
  Require(listen(listener, 1) == 0, "listen on " + path);
  const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  Require(fd >= 0, "accept on " + path);
  close(listener);
  Control control(fd);

  int passed[3];
  char nothing = 0;
  iovec one{&nothing, 1};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof passed)];
  msghdr header{};
  header.msg_iov = &one;
  header.msg_iovlen = 1;
  header.msg_control = space;
  header.msg_controllen = sizeof space;
  Require(recvmsg(fd, &header, MSG_CMSG_CLOEXEC) == 1, "the client's descriptors");
  const cmsghdr* const received = CMSG_FIRSTHDR(&header);
  if (received == nullptr || received->cmsg_len != CMSG_LEN(sizeof passed)) {
    throw Failure("the client passed no descriptors");
  }
  std::memcpy(passed, CMSG_DATA(received), sizeof passed);
  control.events_[0] = passed[1];
  control.events_[1] = passed[2];
  control.MapWords(passed[0]);
  return control;
}

Control Control::Connect(const std::string& path) {
  const sockaddr_un address = UnixAddress(path);
  const int fd = NewSocket();
  for (int waited_ms = 0;; waited_ms += kConnectPause_ms) {
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) break;
    const bool not_yet = errno == ENOENT || errno == ECONNREFUSED;
    Require(not_yet && waited_ms < kConnectPatience_ms, "connect to the server at " + path);
    usleep(kConnectPause_ms * 1000);
  }
  Control control(fd);
  const int memory = memfd_create("rdma_bench", MFD_CLOEXEC);
  Require(memory >= 0 && ftruncate(memory, sizeof(SharedWords)) == 0, "memfd");
  for (int& event : control.events_) {
    event = eventfd(0, EFD_CLOEXEC);
    Require(event >= 0, "eventfd");
  }
  const int passed[3] = {memory, control.events_[0], control.events_[1]};
  char nothing = 0;
  iovec one{&nothing, 1};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof passed)]{};
  msghdr header{};
  header.msg_iov = &one;
  header.msg_iovlen = 1;
  header.msg_control = space;
  header.msg_controllen = sizeof space;
  cmsghdr* const sent = CMSG_FIRSTHDR(&header);
  sent->cmsg_level = SOL_SOCKET;
  sent->cmsg_type = SCM_RIGHTS;
  sent->cmsg_len = CMSG_LEN(sizeof passed);
  std::memcpy(CMSG_DATA(sent), passed, sizeof passed);
  Require(sendmsg(fd, &header, 0) == 1, "passing descriptors to the server");
  control.MapWords(memory);
  return control;
}

Control::Control(Control&& other)
    : fd_(std::exchange(other.fd_, -1)),
      events_{std::exchange(other.events_[0], -1), std::exchange(other.events_[1], -1)},
      words_(std::exchange(other.words_, nullptr)) {}

Control::~Control() {
  for (const int fd : {fd_, events_[0], events_[1]}) {
    if (fd >= 0) close(fd);
  }
  if (words_ != nullptr) munmap(words_, sizeof *words_);
}

void Control::MapWords(int memory) {
  void* const mapped =
      mmap(nullptr, sizeof(SharedWords), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  Require(mapped != MAP_FAILED, "mmap of the shared words");
  close(memory);
  words_ = static_cast<SharedWords*>(mapped);
}

bool Control::Readable() const {
  pollfd one{fd_, POLLIN, 0};
  return poll(&one, 1, 0) > 0;
}

void Control::SendBytes(const void* data, size_t bytes) {
  Require(send(fd_, data, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes),
          "sending to the other process");
}

void Control::ReceiveBytes(void* data, size_t bytes) {
  ssize_t got;
  do {
    got = recv(fd_, data, bytes, 0);
  } while (got < 0 && errno == EINTR);
  if (got == 0) throw Failure("the other process has ended");
  Require(got == static_cast<ssize_t>(bytes), "receiving from the other process");
}

}  // namespace rdma_bench
