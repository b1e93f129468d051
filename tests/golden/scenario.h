// What the committed capture shows: two hosts under virtual time, over IPv4 and then over IPv6.
// Nothing in it depends on the machine: seeds, addresses of memory and times are the scenario's
// own.
#pragma once

#include <string>

namespace rdmaemu::golden {

// The capture as PcapngWriter writes it. Throws std::runtime_error when a step does not do what it
// should.
std::string RecordScenario();

}  // namespace rdmaemu::golden
