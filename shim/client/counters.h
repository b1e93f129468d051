// The counters (eventfds) that a process was given, so that nobody waits for ever when the host
// dies: each is then filled.
#pragma once

namespace rdmaemu::client {

// Remembers a descriptor that came with a reply when it is a counter that a program waits on. Who
// closes it need not say so: what stands behind a number is compared before it is written to.
void RememberCounter(int fd);
// Makes every remembered counter readable for good.
void FillCounters();
void LockCountersForFork();
void UnlockCountersAfterFork();

}  // namespace rdmaemu::client
