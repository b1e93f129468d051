// Writes a pcapng file of packets, and beside it the fields of each packet. One line is one packet:
// its name, then field=value separated by tabs. The field names are this project's; tshark.py maps
// them to tshark's.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "emulator/base/random.h"
#include "emulator/trace/pcapng.h"
#include "emulator/wire/icrc.h"
#include "emulator/wire/packet.h"
#include "tests/wire/fields.h"

namespace rdmaemu::dump {

// The values of fields: the same numbers for the same variant.
class Values {
 public:
  // No bit set, all set, every other one, the remaining ones; random values from variant 4 on.
  static constexpr int kVariants = 10;

  explicit Values(int variant) : variant_(variant), random_(static_cast<uint64_t>(variant)) {}
  uint64_t Bits(size_t width);
  void Fill(std::span<uint8_t> bytes);

 private:
  int variant_;
  Random random_;
};

class Dump {
 public:
  Dump();
  const std::string& file() const { return file_; }
  const std::string& expected() const { return expected_; }

  // Pads and seals the packet. Records its headers' fields, then `fields`.
  void Packet(const std::string& name, const wire::UdpFlow& flow, wire::PacketHeaders headers,
              std::span<const std::byte> payload, const Fields& fields = {});

 private:
  void Note(const std::string& field, const std::string& value) {
    expected_ += "\t" + field + "=" + value;
  }
  void Note(const std::string& field, uint64_t value) { Note(field, std::to_string(value)); }
  void NoteFlow(const wire::UdpFlow& flow);

  trace::PcapngWriter writer_;
  std::string file_, expected_;
  Time time_{};
  uint64_t wall_seconds_, wall_nanoseconds_ = 0;
};

void DumpOpcodes(Dump& dump, const wire::UdpFlow& flow);
void DumpCmMessages(Dump& dump, const wire::UdpFlow& flow);

}  // namespace rdmaemu::dump
