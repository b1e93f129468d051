// Finds or starts a host: the path of its socket, the command that starts it, and one line for the
// user if both fail.
#pragma once

#include <sys/un.h>

namespace rdmaemu::client {

inline constexpr unsigned kMaxHostNameBytes = 48;  // as the registry of emulator/runtime

struct HostPlace {
  char name[kMaxHostNameBytes + 1];
  sockaddr_un socket;
};

// Finds the socket of $RDMAEMU_HOST ("default") in $RDMAEMU_DIR, else $XDG_RUNTIME_DIR/rdmaemu,
// else /tmp/rdmaemu-<uid>. Returns 0, or prints a message and returns a positive errno.
int FindHostPlace(HostPlace& place);

// Runs `rdmaemu host --name NAME --daemonize`, which returns when the host listens. Returns true on
// success, or if other code of the program reaped the command. Prints the reason otherwise.
bool StartHost(const HostPlace& place);

// Prints "rdmaemu: ..." to stderr, once per process for each kind of message.
enum class Complaint { kUnreachable, kGone };
void Complain(Complaint kind, const char* format, ...) __attribute__((format(printf, 2, 3)));
// Says that the host has ended, and where the reason may be.
void ComplainOfEnd(const HostPlace& place, unsigned host_pid);

}  // namespace rdmaemu::client
