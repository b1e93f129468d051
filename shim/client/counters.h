// The counters (eventfds) of a process. All are filled when the host dies, so that no thread waits
// forever.
#pragma once

namespace rdmaemu::client {

// Remembers a descriptor from a reply if it is a counter that a program waits on. Closing it needs
// no call here, because the file behind a number is compared before each write.
void RememberCounter(int fd);
// Makes every remembered counter readable forever.
void FillCounters();
// The program has closed descriptors that it did not open. From now on only a counter with its mark
// is written or closed.
void DoubtCounters();
void LockCountersForFork();
void UnlockCountersAfterFork();

}  // namespace rdmaemu::client
