// Records where in the program each call to the host is made, for `rdmaemu sweep`. The environment
// variable RDMAEMU_CALL_SITES names a directory. Each process appends to a file of its own there,
// which has its process id as its name. Without the variable nothing is recorded.
//
// Lines of a file, with tabs between the words:
//   S SITE FRAME...            the stack of a site, innermost frame first. A later line of the same
//                              site replaces an earlier one, because the process may call execve.
//   C PROCESS OP N SITE        the process (HelloOut::process) makes its Nth call OP. The host gets
//                              the calls of a process in this order.
//   L                          a limit was reached; later calls are missing
// A FRAME is "FILE+0xOFFSET", or "FILE+0xOFFSET SYMBOL". addr2line(1) accepts the offset.
#pragma once

#include <cstdint>

namespace rdmaemu::client {

// Limit of the calls that a process records, and of the sites.
inline constexpr uint64_t kMaxRecordedCalls = uint64_t{1} << 18;
inline constexpr uint32_t kMaxCallSites = 4096;
// Limit of the program's frames in a site. Frames further out are left out.
inline constexpr int kMaxSiteFrames = 16;

// Returns the number of the site of the calling thread's present call. 0: nothing is recorded. Call
// this without locks, because it may wait for the dynamic linker's lock.
uint32_t FindCallSite();
// Records a call of a program's process.
// The caller must hold the lock that serialises calls. Does nothing for site 0.
void RecordCall(uint32_t site, uint32_t process, uint32_t op);
// Makes the lock new in a forked child.
void ResetCallSitesAfterFork();

}  // namespace rdmaemu::client
