// Copies that this process does for its host while it polls anyway (emulator/verbs/copy_jobs.h).
#pragma once

namespace rdmaemu::shim {

// Does what the host has offered, up to a bound; true when there was something. Counts the look, by
// which the host knows that somebody polls.
bool DoCopyJobs();

}  // namespace rdmaemu::shim
