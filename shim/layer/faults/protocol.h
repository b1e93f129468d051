// The protocol between the faults module and the decision server of `rdmaemu run --backend system`.
// The module maps the page of watched doors. For each moment at a watched door, the module opens
// one connection to the host's Unix socket. The headers are those of emulator/abi/calls.h.
#pragma once

#include <atomic>
#include <cstdint>

namespace rdmaemu::layer::faults {

// The module's calls: values of CallHeader::op. No call of emulator/abi/call_table.h has these
// numbers. kAskMoment sends a MomentIn and gets an AnswerOut. After kWaitBefore and kWaitAfter,
// kAwaitMoment sends nothing and gets an empty reply when the delay or barrier has ended.
inline constexpr uint32_t kAskMoment = 0x46410001;
inline constexpr uint32_t kAwaitMoment = 0x46410002;

// The functions that a program calls (calls.inc).
enum CallNumber : uint32_t {
#define CALL(function, subject) kCall_##function,
#define OPERATION(table, member, subject) kCall_##table##_##member,
#include "shim/layer/faults/calls.inc"
#undef CALL
#undef OPERATION
  kCallNumbers,
};

// The place of each function in rules: "reg_mr" for call.reg_mr.
inline constexpr const char* kCallSubjects[] = {
#define CALL(function, subject) #subject,
#define OPERATION(table, member, subject) #subject,
#include "shim/layer/faults/calls.inc"
#undef CALL
#undef OPERATION
};

// The numbers of fault::Point.
enum class Door : uint8_t {
  kCall = 0,
  kCmEvent = 2,
  kCompletion = 3,
  kAsyncEvent = 4,
  kMemory = 7,
};

// MomentIn::number at Door::kMemory.
enum MemoryAccess : uint32_t { kReadsMemory, kWritesMemory };

// The file RDMAEMU_LAYER_FAULTS_DOORS. The server writes it, and programs only read it.
struct DoorsPage {
  std::atomic<uint8_t> calls[kCallNumbers];
  std::atomic<uint8_t> cm_events, completions, async_events, memory;
};

struct MomentIn {
  uint32_t door;    // Door
  uint32_t number;  // CallNumber, rdma_cm_event_type, ibv_wc_opcode, ibv_event_type, MemoryAccess
  uint32_t status;  // of a completion
  uint32_t qp, qp_order;  // qp_order 0: none
  uint32_t has_bytes;
  uint64_t bytes;
  uint64_t address, length;  // at Door::kMemory
  uint32_t mr_order;         // 0: none
  char device[64];
};

enum class Does : uint32_t {
  kProceed,
  kFail,        // the call returns the errno `value` without effect; memory: unmapped
  kFailAfter,   // the call takes effect and returns the errno `value`
  kWaitBefore,  // kAwaitMoment, then the call takes effect
  kWaitAfter,   // the call takes effect, then kAwaitMoment
  kChange,      // `type` and `value` (status) replace those of an event or completion
  kDrop,
};
enum AnswerFlag : uint32_t { kHasType = 1, kHasValue = 2, kKeepsState = 4 };

struct AnswerOut {
  uint32_t does;                // Does
  uint32_t flags;               // AnswerFlag
  uint32_t type;                // rdma_cm_event_type, ibv_event_type
  int32_t value;                // errno, status of an event, ibv_wc_status
  char rule[132];               // name of the rule that decided; empty for kProceed
  uint32_t private_data_bytes;  // 0: an event keeps its private data
  uint8_t private_data[148];
};

}  // namespace rdmaemu::layer::faults
