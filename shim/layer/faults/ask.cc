#include "shim/layer/faults/ask.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <utility>

#include "emulator/abi/calls.h"

namespace rdmaemu::layer::faults {

const DoorsPage* g_doors;

namespace {

// The exit status of a shell for a command that cannot be run.
constexpr int kNoServer = 127;

sockaddr_un g_server;

void SayOnce(const char* why) {
  static std::atomic<bool> is_said;
  if (is_said.exchange(true)) return;
  dprintf(STDERR_FILENO,
          "rdmaemu: the fault rules of this run no longer apply: the process of rdmaemu run"
          " does not answer (%s)\n",
          why);
}

int Connected() {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  while (connect(fd, reinterpret_cast<const sockaddr*>(&g_server), sizeof g_server) != 0) {
    if (errno == EINTR) continue;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
  }
  return fd;
}

}  // namespace

void OpenDoors() {
  if (g_doors != nullptr) return;
  const char* const socket = getenv("RDMAEMU_LAYER_FAULTS_SOCKET");
  const char* const doors = getenv("RDMAEMU_LAYER_FAULTS_DOORS");
  const int fd = doors == nullptr ? -1 : open(doors, O_RDONLY | O_CLOEXEC);
  void* const page =
      fd < 0 ? MAP_FAILED : mmap(nullptr, sizeof(DoorsPage), PROT_READ, MAP_SHARED, fd, 0);
  if (fd >= 0) close(fd);
  if (page == MAP_FAILED || socket == nullptr || strlen(socket) >= sizeof g_server.sun_path) {
    fprintf(stderr, "rdmaemu: cannot open %s for fault rules; start the program by rdmaemu run\n",
            doors == nullptr ? "RDMAEMU_LAYER_FAULTS_DOORS" : doors);
    _exit(kNoServer);
  }
  g_server.sun_family = AF_UNIX;
  strcpy(g_server.sun_path, socket);
  g_doors = static_cast<const DoorsPage*>(page);
}

Asked::Asked(const MomentIn& moment) {
  const int error = errno;
  socket_ = Connected();
  if (socket_ < 0 || !Exchange(kAskMoment, &moment, sizeof moment, &answer_, sizeof answer_)) {
    SayOnce(strerrordesc_np(errno));
    answer_ = {};
  }
  errno = error;
}

Asked::~Asked() {
  if (socket_ < 0) return;
  const int error = errno;
  close(socket_);
  errno = error;
}

void Asked::Await() {
  if (socket_ < 0) return;
  const int error = errno;
  if (!Exchange(kAwaitMoment, nullptr, 0, nullptr, 0)) SayOnce(strerrordesc_np(errno));
  errno = error;
}

int Asked::TakeWait() {
  if (socket_ < 0) return -1;
  const int error = errno;
  if (!Send(kAwaitMoment, nullptr, 0)) {
    SayOnce(strerrordesc_np(errno));
    close(socket_);
    socket_ = -1;
  }
  errno = error;
  return std::exchange(socket_, -1);
}

bool Asked::Send(uint32_t op, const void* body, uint32_t size) {
  CallHeader header{op, size};
  iovec parts[2] = {{&header, sizeof header}, {const_cast<void*>(body), size}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = size == 0 ? 1 : 2;
  ssize_t count;
  while ((count = sendmsg(socket_, &message, MSG_NOSIGNAL)) < 0 && errno == EINTR) {
  }
  return count >= 0;
}

bool Asked::Exchange(uint32_t op, const void* body, uint32_t size, void* out, uint32_t out_size) {
  if (!Send(op, body, size)) return false;
  ReplyHeader reply{};
  iovec parts[2] = {{&reply, sizeof reply}, {out, out_size}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = out_size == 0 ? 1 : 2;
  ssize_t count;
  while ((count = recvmsg(socket_, &message, 0)) < 0 && errno == EINTR) {
  }
  if (count < 0) return false;
  if (static_cast<size_t>(count) == sizeof reply + out_size && reply.error == 0) return true;
  errno = count == 0 ? ECONNRESET : EPROTO;
  return false;
}

}  // namespace rdmaemu::layer::faults
