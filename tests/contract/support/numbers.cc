#include "tests/contract/support/numbers.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <stdexcept>

namespace rdma_contract {
namespace {

// Ports below ip_local_port_range, from which the kernel and the emulator allocate.
constexpr uint32_t kFirstPort = 20'000, kPortsOfABlock = 64, kBlocks = (32'768 - 20'000) / 64;
// Drivers allocate upwards from 16. A block has numbers in the middle of the range.
constexpr uint32_t kFirstQpn = 0x800000, kQpnsOfABlock = 256;

// The socket's name is the lock. The program owns the lock until it ends, however it ends.
bool Take(uint32_t block) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;  // the first byte of the path stays 0: a name without a file
  const int length =
      snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "rdma_contract.block.%u", block);
  const auto bytes =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
  const int holder = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (holder >= 0 && bind(holder, reinterpret_cast<sockaddr*>(&name), bytes) == 0) return true;
  if (holder >= 0) close(holder);
  return false;
}

uint32_t BlockOfThisProgram() {
  static const uint32_t block = [] {
    const uint32_t begin = static_cast<uint32_t>(getpid());
    for (uint32_t i = 0; i < kBlocks; ++i)
      if (Take((begin + i) % kBlocks)) return (begin + i) % kBlocks;
    throw std::runtime_error("all blocks of numbers are taken: too many tests run on this machine");
  }();
  return block;
}

}  // namespace

uint32_t ForeignQpn() {
  static uint32_t used = 0;
  if (used == kQpnsOfABlock) throw std::runtime_error("a test program has 256 foreign QP numbers");
  return kFirstQpn + BlockOfThisProgram() * kQpnsOfABlock + used++;
}

uint16_t UnusedPort() {
  static uint32_t used = 0;
  if (used == kPortsOfABlock) throw std::runtime_error("a test program has 64 ports of its own");
  return static_cast<uint16_t>(kFirstPort + BlockOfThisProgram() * kPortsOfABlock + used++);
}

}  // namespace rdma_contract
