// One program of the scenario: a process with an open device, an rdma_cm channel and a memory
// region. The region's addresses are always the same.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>

#include "emulator/cm/events.h"
#include "emulator/host/testing/world.h"

namespace rdmaemu::golden {

inline void Expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("golden scenario: " + what);
}

class Party {
 public:
  static constexpr size_t kBytes = 32768;
  static constexpr uint64_t kMemory = 0x100000;  // the keys' address of the region's first byte

  Party(testing::World& world, Host& host, const std::string& address);

  // ---- memory
  std::span<std::byte> bytes(size_t offset, size_t length) {
    return std::span(memory_).subspan(offset, length);
  }
  uint32_t lkey() const { return region_.lkey; }
  uint32_t rkey() const { return region_.rkey; }

  // ---- rdma_cm
  template <class Command, class Response>
  int Cm(uint32_t command, const Command& in, Response& out) {
    return client_.Call(Op(command), CmCall<Command>{channel_, 0, in}, out);
  }
  template <class Command>
  void Do(uint32_t command, const Command& in) {
    Expect(client_.Call(Op(command), CmCall<Command>{channel_, 0, in}) == 0,
           "command " + std::to_string(command) + " failed");
  }
  uint32_t CreateId(uint16_t port_space);
  void Listen(uint32_t id, uint16_t port);
  // Resolves address and route and takes their events.
  void Resolve(uint32_t id, const std::string& destination, uint16_t port);
  void Destroy(uint32_t id);
  // Runs the world until the next event, which must be of this type.
  rdma_ucm_event_resp Event(cm::EventType type);

  // ---- queue pairs
  testing::Verb::Qp CreateQp(ibv_qp_type type) { return verb_.CreateQp(type, 16, 2); }
  // Moves to the state with the attributes of rdma_cm (INIT_QP_ATTR).
  void Modify(const testing::Verb::Qp& qp, uint32_t id, ibv_qp_state state);
  void ReadyUd(const testing::Verb::Qp& qp, uint32_t id);  // INIT, RTR, RTS
  void PostReceive(testing::Verb::Qp& qp, size_t offset, uint32_t length);
  void PostSend(testing::Verb::Qp& qp, ibv_wr_opcode opcode, size_t offset, uint32_t length,
                const std::function<void(testing::PlainSend&)>& fill = {});
  // Runs the world until the next completion, which must be successful.
  ib_uverbs_wc Completion();
  uint32_t CreateAh(const ib_uverbs_ah_attr& attr);

 private:
  static CallOp Op(uint32_t command) {
    return CallOp{static_cast<uint32_t>(CallOp::kCmCommand) + command};
  }

  testing::World& world_;
  std::string address_;
  testing::Client client_;
  testing::Verb verb_;
  uint32_t channel_ = 0;
  MrOut region_{};
  alignas(4096) std::array<std::byte, kBytes> memory_{};
};

}  // namespace rdmaemu::golden
