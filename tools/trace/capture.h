// Reads packet captures (`rdmaemu run --pcap`, docs/trace.md) as traces, so that the tools show
// packets among the records of hosts and programs.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "tools/trace/record.h"

namespace rdmaemu::trace_tools {

// The object name of a capture without an interface name.
inline constexpr std::string_view kUnnamedHost = "capture";

// Returns true if the bytes begin as a pcapng file does.
bool IsCapture(std::string_view bytes);

// Parses the RoCE packets of a pcapng capture into `trace`, whose records must be empty. Each
// packet becomes a record of kind `packet`, and its line is the packet's number in the file,
// from 1. Other packets become records named `other`. The section must be little-endian, and the
// link type RAW or Ethernet. An error names the file and the packet: "a.pcapng: packet 7: ...".
tl::expected<void, std::string> ReadCapture(std::string name, std::string_view bytes, Trace& trace);

// Shifts a capture of a host on a virtual or manual clock to the times of this host's trace. A CM
// message that is in both traces determines the distance. Does nothing when `traces` have no such
// host.
void AlignCapture(const std::vector<Trace*>& traces, Trace& capture);

}  // namespace rdmaemu::trace_tools
