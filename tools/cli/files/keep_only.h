// The descriptors of a process that was forked and does not execute another program.
#pragma once

namespace rdmaemu::cli {

// Closes every descriptor but one, so that the process keeps no pipe of its caller open. The
// standard streams become /dev/null. Returns the number that the kept descriptor has now. Ends the
// process when /dev/null cannot be opened.
int KeepOnly(int fd);
// Does so in a process of this name that serves its caller. A signal of the terminal or to the
// process group does not end it. Its directory is "/".
int BecomeServer(const char* name, int fd);

}  // namespace rdmaemu::cli
