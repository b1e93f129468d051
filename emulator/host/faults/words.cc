#include "emulator/host/faults/words.h"

#include <algorithm>
#include <array>
#include <utility>

#include "emulator/abi/calls.h"
#include "emulator/abi/write_event.h"
#include "emulator/base/async_events.h"
#include "emulator/base/cm_event_names.h"
#include "emulator/base/newer_verbs.h"
#include "emulator/cm/events.h"
#include "emulator/fault/grammar.h"
#include "emulator/host/calls/call_names.h"
#include "emulator/host/faults/host_faults.h"

namespace rdmaemu {
namespace {

using fault::Point;
using fault::SubjectOf;

constexpr const char* kFlushed = "flushed";

// In the order in which messages list them. The device has no other opcodes.
constexpr std::array<std::pair<ibv_wc_opcode, const char*>, 11> kCompletions = {{
    {IBV_WC_SEND, "send"},
    {IBV_WC_RDMA_WRITE, "rdma_write"},
    {IBV_WC_RDMA_READ, "rdma_read"},
    {IBV_WC_COMP_SWAP, "comp_swap"},
    {IBV_WC_FETCH_ADD, "fetch_add"},
    {IBV_WC_ATOMIC_WRITE, "atomic_write"},
    {static_cast<ibv_wc_opcode>(kWcFlush), "flush"},
    {IBV_WC_BIND_MW, "bind_mw"},
    {IBV_WC_LOCAL_INV, "local_inv"},
    {IBV_WC_RECV, "recv"},
    {IBV_WC_RECV_RDMA_WITH_IMM, "recv_rdma_with_imm"},
}};

std::string WithoutPrefix(std::string_view name, std::string_view prefix) {
  return SubjectOf(name.starts_with(prefix) ? name.substr(prefix.size()) : name);
}

std::string OpcodeSubject(const wire::OpcodeInfo& info) {
  std::string subject = SubjectOf(info.name);
  std::ranges::replace(subject, ' ', '_');
  return subject;
}

fault::Vocabulary MakeVocabulary() {
  fault::Vocabulary words;
  const auto of = [&](Point point) -> std::vector<std::string>& {
    return words[static_cast<size_t>(point)];
  };
  for (uint32_t op = 1; op <= static_cast<uint32_t>(CallOp::kCmCommand) + kCmCommandWriteEvent;
       op++) {
    if (std::string_view(CallName(op)) != "unknown" && CanFail(op)) {
      of(Point::kCall).push_back(CallSubject(op));
    }
  }
  const wire::CmBody kBodies[] = {wire::CmReq{},  wire::CmMra{},     wire::CmRej{},
                                  wire::CmRep{},  wire::CmRtu{},     wire::CmDreq{},
                                  wire::CmDrep{}, wire::CmSidrReq{}, wire::CmSidrRep{}};
  static_assert(std::size(kBodies) == std::variant_size_v<wire::CmBody>);
  for (const wire::CmBody& body : kBodies) of(Point::kCmMessage).push_back(MessageSubject(body));
  for (uint32_t event = 0; event <= static_cast<uint32_t>(cm::EventType::kTimewaitExit); event++) {
    of(Point::kCmEvent).push_back(EventSubject(event));
  }
  for (const auto& [opcode, name] : kCompletions) of(Point::kCompletion).emplace_back(name);
  of(Point::kCompletion).emplace_back(kFlushed);
  of(Point::kAsyncEvent) = fault::AsyncEvents();
  of(Point::kMemory) = {"read", "write"};
  for (const auto transport :
       {wire::TransportClass::kRc, wire::TransportClass::kUc, wire::TransportClass::kUd}) {
    for (uint8_t operation = 0; operation < 0x20; operation++) {
      const wire::OpcodeInfo& info = wire::Opcode(transport, wire::Operation{operation});
      if (info.name != nullptr) of(Point::kPacket).push_back(OpcodeSubject(info));
    }
  }
  return words;
}

}  // namespace

bool CanFail(uint32_t op) { return !HasTrait(op, kOfHost); }

std::string CallSubject(uint32_t op) { return CallName(op); }
std::string MessageSubject(const wire::CmBody& body) { return SubjectOf(wire::CmName(body)); }
std::string EventSubject(uint32_t event) {
  return WithoutPrefix(CmEventName(event), "RDMA_CM_EVENT_");
}

std::string PacketSubject(const wire::PacketHeaders& headers) {
  return OpcodeSubject(headers.info());
}

std::string AsyncSubject(ibv_event_type type) {
  return WithoutPrefix(AsyncEventName(type), "IBV_EVENT_");
}

const char* CompletionSubject(uint32_t status, ibv_wc_opcode opcode) {
  if (status == IBV_WC_WR_FLUSH_ERR) return kFlushed;
  for (const auto& [known, name] : kCompletions) {
    if (known == opcode) return name;
  }
  return "";
}

const fault::Vocabulary& FaultVocabulary() {
  static const fault::Vocabulary kWords = MakeVocabulary();
  return kWords;
}

}  // namespace rdmaemu
