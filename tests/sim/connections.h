// Programs that use RDMA CM. They listen, resolve, connect, accept or reject late, disconnect, and
// destroy ids in any state. The checker gets the events of their channels.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/checkers/cm_checker.h"
#include "tests/sim/traffic.h"

namespace rdmaemu::sim {

struct CmId {
  uint32_t number = 0;  // the program's uid
  Program* program = nullptr;
  uint32_t handle = 0;   // the host's id
  uint32_t channel = 0;  // index of the program's channels
  uint16_t port_space = 0;
  ibv_qp_type type = IBV_QPT_RC;
  bool listens = false, passive = false, ended = false;
  bool ipv6 = false;
  uint16_t port = 0;  // of a listener
  Endpoint* endpoint = nullptr;
  uint32_t lent_qpn = 0;  // the QP number of another id; this id moves no data
  CmId* partner = nullptr;
  // Of a request, as this side has them: the limits of its accept.
  uint8_t responder_resources = 0, initiator_depth = 0;
};

class Connections {
 public:
  Connections(World& world, Traffic& traffic)
      : world_(world), traffic_(traffic), checker_(world.verdict()) {}

  // Makes a random step of the program.
  void Step(Program& program);
  // Takes all events of the program's channels. The program reacts to them later.
  void Harvest(Program& program);
  // The program or its host has ended.
  void Abandon(Program& program);
  // The machine did not answer for a while.
  void Disturb(Machine& machine);
  // From now on programs react at once and begin nothing new.
  void CalmDown() { calm_ = true; }
  bool IsWaiting() const;
  // The time limit of a connection attempt.
  Duration Bound() const;
  void Finish() { checker_.Finish(); }

 private:
  struct Channel {
    uint32_t handle;
    CounterId counter;
  };
  static constexpr uint16_t kFirstPort = 7000, kPorts = 4;
  static constexpr size_t kMaxIds = 120;

  std::vector<Channel>& ChannelsOf(Program& program);
  CmId* NewId(Program& program, uint16_t port_space, ibv_qp_type type);
  template <class Command>
  int Call(const CmId& id, uint32_t command, const Command& in) {
    return id.program->process().Cm(ChannelsOf(*id.program)[id.channel].handle, command, in);
  }
  void Listen(Program& program);
  void BeginConnect(Program& program);
  // Connects with the number of a QP that another id has already connected.
  void ConnectAgain(CmId& id);
  void Connect(CmId& id);
  void Accept(CmId& id);
  void Reject(CmId& id);
  void Establish(CmId& id);
  void Disconnect(CmId& id);
  void Destroy(CmId& id);
  void Migrate(CmId& id);
  Endpoint* MakeEndpoint(CmId& id);
  // Moves the QP to the id's state. Returns false when a step was refused.
  bool MoveTo(CmId& id, ibv_qp_state state);
  void FillParameters(CmId& id, rdma_ucm_conn_param& out, std::vector<uint8_t>& said,
                      size_t most_private_data);
  void Requested(Program& program, const rdma_ucm_event_resp& event, CmId& listener);
  void Happened(Program& program, const rdma_ucm_event_resp& event);
  void React(CmId& id, CmEventKind event);
  void AnswerRequest(CmId& id);
  void Say(const CmId& id, const std::string& what);
  std::string NameOf(const CmId& id) const;
  CmId* Any(Program& program, bool (*fits)(const CmId&));

  World& world_;
  Traffic& traffic_;
  CmChecker checker_;
  std::deque<std::unique_ptr<CmId>> ids_;
  std::map<Program*, std::vector<Channel>> channels_;
  std::map<std::pair<Program*, uint32_t>, CmId*> by_handle_;
  bool calm_ = false;
};

}  // namespace rdmaemu::sim
