// Writes a pcapng file with every opcode and every CM message over IPv4 and IPv6, and beside it the
// fields of each packet. Usage: dump_packets PCAPNG EXPECTED.
#include <fstream>
#include <iostream>

#include "tests/wire/dump.h"

int main(int argc, char** argv) {
  using rdmaemu::NetAddress;
  if (argc != 3) {
    std::cerr << "usage: dump_packets PCAPNG EXPECTED\n";
    return 2;
  }
  rdmaemu::dump::Dump dump;
  const rdmaemu::wire::UdpFlow flows[] = {
      {NetAddress::Ipv4(0x7f000101), NetAddress::Ipv4(0x7f000102), 0xc001, 4791},
      {NetAddress::Ipv4(0x01000001), NetAddress::Ipv4(0xfffffffe), 0xffff, 4791},
      {*NetAddress::Parse("fd00::1"), *NetAddress::Parse("fd00::2"), 4791, 4791}};
  for (const auto& flow : flows) {
    rdmaemu::dump::DumpOpcodes(dump, flow);
    rdmaemu::dump::DumpCmMessages(dump, flow);
  }
  std::ofstream(argv[1], std::ios::binary) << dump.file();
  std::ofstream expected(argv[2]);
  expected << dump.expected();
  return expected.flush() ? 0 : 1;
}
