// The words that rules use for the events at a host's doors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "emulator/base/uapi.h"
#include "emulator/wire/cm_message.h"
#include "emulator/wire/packet.h"

namespace rdmaemu {

// Returns true for a call of a program. Returns false for calls of the host's control or of the
// connection itself.
bool CanFail(uint32_t op);
std::string CallSubject(uint32_t op);
std::string MessageSubject(const wire::CmBody& body);
std::string EventSubject(uint32_t event);
// "rc_send_only"
std::string PacketSubject(const wire::PacketHeaders& headers);
std::string AsyncSubject(ibv_event_type type);
// Returns the subject of a completion: "send", "recv_rdma_with_imm", or "flushed" for that status.
const char* CompletionSubject(uint32_t status, ibv_wc_opcode opcode);

}  // namespace rdmaemu
