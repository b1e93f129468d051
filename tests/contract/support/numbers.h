// Numbers that a test chooses itself and that no other program uses meanwhile. No driver allocates
// these numbers. Each of the programs that run side by side on one machine has its own block of
// numbers.
#pragma once

#include <cstdint>

namespace rdma_contract {

// Returns a number for an id without a QP of this test. If two ids used the same number, the CM
// would take one for a stale connection.
uint32_t ForeignQpn();
// Returns a new port at each call. The port is never allocated to an id that binds to port 0.
uint16_t UnusedPort();

}  // namespace rdma_contract
