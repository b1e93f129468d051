// The counters (eventfds) of a process. When the host dies, all counters are filled, so that no
// thread blocks forever.
#pragma once

namespace rdmaemu::client {

// Registers a descriptor from a reply if it is a counter on which a program waits. Closing the
// descriptor needs no call here, because the file behind a number is compared before each write.
void RememberCounter(int fd);
// Makes every registered counter readable forever.
void FillCounters();
// Records that the program has closed descriptors that it did not open. From now on only counters
// that have their mark are written or closed.
void DoubtCounters();
void LockCountersForFork();
void UnlockCountersAfterFork();

}  // namespace rdmaemu::client
