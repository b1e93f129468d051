// Numbers that a test chooses itself, and that nobody else has meanwhile: no driver hands them out,
// and of the programs that run beside each other on one machine each has a block of its own.
#pragma once

#include <cstdint>

namespace rdma_contract {

// A number for an id whose QP is somebody else's: were two ids to name the same, one would be taken
// for a stale connection.
uint32_t ForeignQpn();
// A port that is never chosen for an id that binds to port 0, another one each time.
uint16_t UnusedPort();

}  // namespace rdma_contract
