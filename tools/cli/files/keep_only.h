// The descriptors of a process that was forked and does not execute another program.
#pragma once

namespace rdmaemu::cli {

// Closes every descriptor but one, so that the process keeps no pipe of its caller open. Opens the
// standard streams as /dev/null. Returns the new number of the kept descriptor. Ends the process
// when /dev/null cannot be opened.
int KeepOnly(int fd);
// Does the same in a process of this name that serves its caller. A signal of the terminal or to
// the process group does not end this process. Its directory is "/".
int BecomeServer(const char* name, int fd);

}  // namespace rdmaemu::cli
