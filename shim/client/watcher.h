// The thread that waits for the end of the connection to a host process.
#pragma once

namespace rdmaemu::client {

// Starts a detached thread that calls `ended` when the peer has closed `socket`. All signals are
// blocked in it. 0, or pthread_create(3)'s errno.
int StartWatcher(int socket, void (*ended)());

}  // namespace rdmaemu::client
