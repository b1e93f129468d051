// Reduces traces of hosts to the records and values that must be the same in two runs. canonical.h
// does this for traces of programs, and compare.h compares the results.
#pragma once

#include "tools/trace/canonical.h"

namespace rdmaemu::trace_tools {

// Canonicalises the trace of one host, or of several hosts:
//
// - A stream has the records of one object of a host. The calls of each client are another stream.
// - Objects are numbered in the order in which the trace first mentions them: "qp#1". Numbers that
//   the host chose (communication ids, PSNs, keys) have names: "comm_id#1".
// - Clients are numbered in the order of their first counted record.
// - The calls by which commands watch a host, and the calls that fetch an event or a completion,
//   count only when they fail. Their number depends on timing.
CanonicalTrace CanonicalizeHost(const Trace& trace);

}  // namespace rdmaemu::trace_tools
