// The thread that waits for a host process to close the connection.
#pragma once

namespace rdmaemu::client {

// Starts a detached thread that calls `ended` when the peer has closed `socket`. The thread blocks
// all signals. Returns 0 or the errno of pthread_create(3).
int StartWatcher(int socket, void (*ended)());

}  // namespace rdmaemu::client
