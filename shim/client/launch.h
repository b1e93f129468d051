// Finding a host: where its socket is, which command starts one, and one line for a person when
// neither works.
#pragma once

#include <sys/un.h>

namespace rdmaemu::client {

inline constexpr unsigned kMaxHostNameBytes = 48;  // as the registry of emulator/runtime

struct HostPlace {
  char name[kMaxHostNameBytes + 1];
  sockaddr_un socket;
};

// $RDMAEMU_HOST ("default") in $RDMAEMU_DIR, else $XDG_RUNTIME_DIR/rdmaemu, else
// /tmp/rdmaemu-<uid>. 0 or a positive errno, after a message.
int FindHostPlace(HostPlace& place);

// Runs `rdmaemu host --name NAME --daemonize`, which returns once the host listens. True when it
// said so, or when its status was taken by another waiter; prints why not otherwise.
bool StartHost(const HostPlace& place);

// Prints "rdmaemu: ..." to stderr, once a process for all messages of one kind.
enum class Complaint { kUnreachable, kGone };
void Complain(Complaint kind, const char* format, ...) __attribute__((format(printf, 2, 3)));

}  // namespace rdmaemu::client
