#include "shim/client/messages.h"

#include <string.h>
#include <sys/uio.h>

#include "shim/client/system.h"

namespace rdmaemu::client {
namespace {

void CloseAll(const int* descriptors, size_t count) {
  for (size_t i = 0; i < count; i++) SysClose(descriptors[i]);
}

size_t TakeDescriptors(msghdr& message, int (&descriptors)[kMaxReplyDescriptors]) {
  size_t count = 0;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t here = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < here; i++) {
      int fd;
      memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      if (count < kMaxReplyDescriptors) {
        descriptors[count++] = SysAboveStandard(fd);
      } else {
        SysClose(fd);
      }
    }
  }
  return count;
}

// Checks that the process has room for `wanted` descriptors. When a reply's descriptors do not fit,
// the host has already executed the call, and nobody can undo it. Returns 0 or EMFILE.
int FindRoom(int socket, uint32_t wanted) {
  int spare[kMaxReplyDescriptors];
  uint32_t found = 0;
  while (found < wanted && found < kMaxReplyDescriptors) {
    spare[found] = SysDuplicate(socket);
    if (spare[found] < 0) break;
    found++;
  }
  CloseAll(spare, found);
  return found == wanted ? 0 : EMFILE;
}

}  // namespace

int Exchange(int socket, CallHeader header, const void* in, Buffer& out, int* descriptors,
             uint32_t wanted) {
  if (const int error = FindRoom(socket, wanted); error != 0) return error;
  iovec parts[2] = {{&header, sizeof header}, {const_cast<void*>(in), header.size}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = header.size > 0 ? 2 : 1;
  ssize_t moved;
  do {
    moved = SysSendMessage(socket, &message);
  } while (moved < 0 && errno == EINTR);
  if (moved < 0) return EIO;

  ReplyHeader reply{};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxReplyDescriptors)];
  parts[0] = {&reply, sizeof reply};
  parts[1] = {out.bytes, out.size};
  message = {};
  message.msg_iov = parts;
  message.msg_iovlen = out.size > 0 ? 2 : 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  do {
    moved = SysReceiveMessage(socket, &message);
  } while (moved < 0 && errno == EINTR);
  if (moved < static_cast<ssize_t>(sizeof reply)) return EIO;

  int came[kMaxReplyDescriptors];
  const size_t count = TakeDescriptors(message, came);
  out.filled = static_cast<uint32_t>(moved - sizeof reply);
  if (reply.error != 0 || count != wanted) {
    CloseAll(came, count);
    if (reply.error > 0) return reply.error;
    return (message.msg_flags & MSG_CTRUNC) != 0 ? EMFILE : EPROTO;
  }
  if (count > 0) memcpy(descriptors, came, count * sizeof(int));
  return 0;
}

}  // namespace rdmaemu::client
