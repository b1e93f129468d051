// The one table of opcodes (IBTA table 38): the headers of each BTH opcode byte, and the packet's
// position in its message. Parse, EmitHeaders and the transports read it. No other code lists
// opcodes.
#include <array>

#include "emulator/wire/packet.h"

namespace rdmaemu::wire {
namespace {

constexpr uint8_t kBthBytes = 12;
constexpr uint8_t kRethBytes = 16;
constexpr uint8_t kFethBytes = 4;
constexpr uint8_t kAtomicEthBytes = 28;
constexpr uint8_t kAethBytes = 4;
constexpr uint8_t kAtomicAckEthBytes = 8;
constexpr uint8_t kDethBytes = 8;
constexpr uint8_t kImmBytes = 4;
constexpr uint8_t kIethBytes = 4;

// The meaning of an operation without its transport class, one bit per property.
enum Trait : uint32_t {
  kRequest = 1u << 0,
  kResponse = 1u << 1,
  kFirst = 1u << 2,
  kMiddle = 1u << 3,
  kLast = 1u << 4,
  kOnly = 1u << 5,
  kSend = 1u << 6,
  kWrite = 1u << 7,
  kRead = 1u << 8,
  kAtomic = 1u << 9,
  kAck = 1u << 10,
  kReth = 1u << 11,
  kAtomicEth = 1u << 12,
  kAeth = 1u << 13,
  kAtomicAckEth = 1u << 14,
  kDeth = 1u << 15,
  kImm = 1u << 16,
  kIeth = 1u << 17,
  kPayload = 1u << 18,
  kWriteWord = 1u << 19,
  kFlushes = 1u << 20,
  kFeth = 1u << 21,
};

constexpr OpcodeInfo Make(const char* name, uint32_t traits) {
  const auto has = [traits](Trait trait) { return (traits & trait) != 0; };
  OpcodeInfo info{};
  info.name = name;
  info.request = has(kRequest);
  info.response = has(kResponse);
  info.first = has(kFirst);
  info.middle = has(kMiddle);
  info.last = has(kLast);
  info.only = has(kOnly);
  info.send = has(kSend);
  info.write = has(kWrite);
  info.read = has(kRead);
  info.atomic = has(kAtomic);
  info.atomic_write = has(kWriteWord);
  info.flush = has(kFlushes);
  info.ack = has(kAck);
  info.reth = has(kReth);
  info.feth = has(kFeth);
  info.atomic_eth = has(kAtomicEth);
  info.aeth = has(kAeth);
  info.atomic_ack_eth = has(kAtomicAckEth);
  info.deth = has(kDeth);
  info.imm = has(kImm);
  info.ieth = has(kIeth);
  info.payload = has(kPayload);
  info.header_bytes = static_cast<uint8_t>(
      kBthBytes + (info.reth ? kRethBytes : 0) + (info.atomic_eth ? kAtomicEthBytes : 0) +
      (info.aeth ? kAethBytes : 0) + (info.atomic_ack_eth ? kAtomicAckEthBytes : 0) +
      (info.deth ? kDethBytes : 0) + (info.imm ? kImmBytes : 0) + (info.ieth ? kIethBytes : 0) +
      (info.feth ? kFethBytes : 0));
  return info;
}

struct Row {
  TransportClass transport;
  Operation operation;
  const char* name;
  uint32_t traits;
};

constexpr uint32_t kSendData = kRequest | kSend | kPayload;
constexpr uint32_t kWriteData = kRequest | kWrite | kPayload;
constexpr uint32_t kReadData = kResponse | kRead | kPayload;

using enum Operation;
constexpr Row kRows[] = {
    {TransportClass::kRc, kSendFirst, "RC SEND First", kSendData | kFirst},
    {TransportClass::kRc, kSendMiddle, "RC SEND Middle", kSendData | kMiddle},
    {TransportClass::kRc, kSendLast, "RC SEND Last", kSendData | kLast},
    {TransportClass::kRc, kSendLastImm, "RC SEND Last with Immediate", kSendData | kLast | kImm},
    {TransportClass::kRc, kSendOnly, "RC SEND Only", kSendData | kOnly},
    {TransportClass::kRc, kSendOnlyImm, "RC SEND Only with Immediate", kSendData | kOnly | kImm},
    {TransportClass::kRc, kWriteFirst, "RC WRITE First", kWriteData | kFirst | kReth},
    {TransportClass::kRc, kWriteMiddle, "RC WRITE Middle", kWriteData | kMiddle},
    {TransportClass::kRc, kWriteLast, "RC WRITE Last", kWriteData | kLast},
    {TransportClass::kRc, kWriteLastImm, "RC WRITE Last with Immediate", kWriteData | kLast | kImm},
    {TransportClass::kRc, kWriteOnly, "RC WRITE Only", kWriteData | kOnly | kReth},
    {TransportClass::kRc, kWriteOnlyImm, "RC WRITE Only with Immediate",
     kWriteData | kOnly | kReth | kImm},
    {TransportClass::kRc, kReadRequest, "RC READ Request", kRequest | kRead | kOnly | kReth},
    {TransportClass::kRc, kReadResponseFirst, "RC READ Response First", kReadData | kFirst | kAeth},
    {TransportClass::kRc, kReadResponseMiddle, "RC READ Response Middle", kReadData | kMiddle},
    {TransportClass::kRc, kReadResponseLast, "RC READ Response Last", kReadData | kLast | kAeth},
    {TransportClass::kRc, kReadResponseOnly, "RC READ Response Only", kReadData | kOnly | kAeth},
    {TransportClass::kRc, kAcknowledge, "RC Acknowledge", kResponse | kAck | kOnly | kAeth},
    {TransportClass::kRc, kAtomicAcknowledge, "RC ATOMIC Acknowledge",
     kResponse | kAtomic | kOnly | kAeth | kAtomicAckEth},
    {TransportClass::kRc, kCompareSwap, "RC CmpSwap", kRequest | kAtomic | kOnly | kAtomicEth},
    {TransportClass::kRc, kFetchAdd, "RC FetchAdd", kRequest | kAtomic | kOnly | kAtomicEth},
    {TransportClass::kRc, kSendLastInvalidate, "RC SEND Last with Invalidate",
     kSendData | kLast | kIeth},
    {TransportClass::kRc, kSendOnlyInvalidate, "RC SEND Only with Invalidate",
     kSendData | kOnly | kIeth},
    {TransportClass::kRc, kFlush, "RC FLUSH", kRequest | kFlushes | kOnly | kFeth | kReth},
    {TransportClass::kRc, kAtomicWrite, "RC ATOMIC WRITE",
     kRequest | kWriteWord | kOnly | kReth | kPayload},

    {TransportClass::kUc, kSendFirst, "UC SEND First", kSendData | kFirst},
    {TransportClass::kUc, kSendMiddle, "UC SEND Middle", kSendData | kMiddle},
    {TransportClass::kUc, kSendLast, "UC SEND Last", kSendData | kLast},
    {TransportClass::kUc, kSendLastImm, "UC SEND Last with Immediate", kSendData | kLast | kImm},
    {TransportClass::kUc, kSendOnly, "UC SEND Only", kSendData | kOnly},
    {TransportClass::kUc, kSendOnlyImm, "UC SEND Only with Immediate", kSendData | kOnly | kImm},
    {TransportClass::kUc, kWriteFirst, "UC WRITE First", kWriteData | kFirst | kReth},
    {TransportClass::kUc, kWriteMiddle, "UC WRITE Middle", kWriteData | kMiddle},
    {TransportClass::kUc, kWriteLast, "UC WRITE Last", kWriteData | kLast},
    {TransportClass::kUc, kWriteLastImm, "UC WRITE Last with Immediate", kWriteData | kLast | kImm},
    {TransportClass::kUc, kWriteOnly, "UC WRITE Only", kWriteData | kOnly | kReth},
    {TransportClass::kUc, kWriteOnlyImm, "UC WRITE Only with Immediate",
     kWriteData | kOnly | kReth | kImm},

    {TransportClass::kUd, kSendOnly, "UD SEND Only", kSendData | kOnly | kDeth},
    {TransportClass::kUd, kSendOnlyImm, "UD SEND Only with Immediate",
     kSendData | kOnly | kDeth | kImm},
};

constexpr std::array<OpcodeInfo, 256> kTable = [] {
  std::array<OpcodeInfo, 256> table{};
  for (const Row& row : kRows) {
    table[OpcodeByte(row.transport, row.operation)] = Make(row.name, row.traits);
  }
  return table;
}();

constexpr bool AllFitMaxHeaderBytes() {
  for (const OpcodeInfo& info : kTable) {
    if (info.header_bytes > kMaxHeaderBytes) return false;
  }
  return true;
}
static_assert(AllFitMaxHeaderBytes());

}  // namespace

constinit const std::array<OpcodeInfo, 256> kOpcodes = kTable;

}  // namespace rdmaemu::wire
