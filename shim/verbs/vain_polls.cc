// Polls that find nothing. They make copies for the host, or let the host run.

#include <time.h>

#include "shim/client/machine_clock.h"
#include "shim/verbs/copy_jobs.h"
#include "shim/verbs/objects.h"
#include "shim/verbs/only_polls.h"
#include "shim/verbs/poll_waits.h"

namespace rdmaemu::shim {
namespace {

// A spinning program yields early. Otherwise its host could not run if there are few cores. 100
// empty polls before a yield already starve the host.
constexpr unsigned kEmptyPollsBeforeYield = 4;

int64_t NanosecondsOf(clockid_t clock) {
  timespec now{};
  client::MachineClock()(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// This clock advances with the timer tick, and reading it takes 4 ns instead of 24. A short wait
// seldom contains a tick, and then counts as a whole tick.
int64_t CoarseNanoseconds() { return NanosecondsOf(CLOCK_MONOTONIC_COARSE); }

// This thread's own time between the two readings counts as that of the others
// (PollWaits::kNoTime).
int64_t NanosecondsOfOtherThreads() {
  const int64_t own = NanosecondsOf(CLOCK_THREAD_CPUTIME_ID);
  return NanosecondsOf(CLOCK_PROCESS_CPUTIME_ID) - own;
}

// The state of one thread between its empty polls.
struct VainPolls {
  unsigned since_wait = 0;
  OnlyPolls only;
  PollWaits waits;
};

// A thread that does other work between its polls must not wait on another processor.
void YieldOrAwaitHost(OnlyPolls& only) {
  if (!client::MayAwaitHostAnywhere()) return client::YieldToHost();
  if (only.Check(NanosecondsOf(CLOCK_MONOTONIC))) {
    client::AwaitHostAnywhere();
  } else {
    client::YieldToHost();
  }
  only.Yielded(NanosecondsOf(CLOCK_MONOTONIC));
}

}  // namespace

void AfterEmptyPoll() {
  if (DoCopyJobs() || client::DriveEmbedded()) return;
  static thread_local VainPolls polls __attribute__((tls_model("initial-exec")));
  if (++polls.since_wait < kEmptyPollsBeforeYield) return;
  polls.since_wait = 0;
  const int64_t began = CoarseNanoseconds();
  if (!polls.waits.MayWait(began)) return;
  YieldOrAwaitHost(polls.only);
  polls.waits.Waited(began, CoarseNanoseconds(), NanosecondsOfOtherThreads);
}

}  // namespace rdmaemu::shim
