// Records of a host's actions: one per call, CM message, CM event, state change and completion
// error. A sink writes them as text, JSON lines or pcapng. The pure core only fills them in.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "emulator/base/ids.h"
#include "emulator/base/time.h"
#include "emulator/wire/icrc.h"

namespace rdmaemu::trace {

struct Field {
  std::string_view key;  // a literal
  std::variant<int64_t, uint64_t, std::string> value;
};

struct Record {
  Time time;
  ProcessId process = ProcessId::kNone;  // the calling process; kNone: the host itself
  std::string_view kind;  // "host", "clock", "call", "fault", "fault.release", "cm.send",
                          // "cm.receive", "cm.event", "qp.state", "qp.error", "rc.retry",
                          // "async", "wc.error", "process"
  std::string object;     // "qp 17", "id 3", "device rxe0"
  std::string what;       // "REQ", "ESTABLISHED", "RESET -> INIT"
  std::vector<Field> fields;
};

class Sink {
 public:
  virtual ~Sink() = default;
  // Returns false when nobody reads the records. Callers then need not build records.
  virtual bool wants_records() const = 0;
  virtual void Write(const Record& record) = 0;
  // Returns true when WritePacket wants packets: those sent or received over UDP, and those between
  // two QPs of one host.
  virtual bool wants_packets() const = 0;
  virtual void WritePacket(Time time, const wire::UdpFlow& flow,
                           std::span<const std::byte> udp_payload) = 0;
};

}  // namespace rdmaemu::trace
