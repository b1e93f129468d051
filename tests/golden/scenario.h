// The content of the committed capture: two hosts under virtual time, over IPv4 and then over IPv6.
// It does not depend on the machine. The scenario fixes seeds, memory addresses and times.
#pragma once

#include <string>

namespace rdmaemu::golden {

// Returns the capture in PcapngWriter's format. Throws std::runtime_error when a step fails.
std::string RecordScenario();

}  // namespace rdmaemu::golden
