// Programs that make any call of RDMA CM at any moment, valid or not, on ids that connect to each
// other. A model of an id checks the calls' results and the events. It also checks each side's
// events against the other side's calls.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/checkers/cm_model.h"
#include "tests/sim/checkers/group_model.h"
#include "tests/sim/machine_devices.h"
#include "tests/sim/process.h"

namespace rdmaemu::sim {

class CmCalls {
 public:
  explicit CmCalls(World& world)
      : world_(world),
        model_(world.verdict()),
        groups_(world.verdict()),
        causes_(world.verdict()) {}

  // Starts a program without any objects.
  void StartCaller(Machine& machine);
  // One program makes one step.
  void Step();
  // Kills a program without a disconnect. Crashed ends all callers of a machine after its host
  // crashed.
  void KillOne();
  void Crashed(Machine& machine);
  // Changes a device, a port or an address of the machine. MendDevices restores it later.
  void ChangeDevices(Machine& machine);
  void MendDevices();
  // From now on programs take events at once and begin nothing new.
  void CalmDown();
  void Harvest(Machine& machine);
  bool IsWaiting() const;
  // The time limit of a connection attempt, and of the end of a connection.
  static Duration Bound();
  void Finish() {
    model_.Finish();
    groups_.Finish();
  }
  // Destroys all ids, one by one or with their programs.
  void EndAll();

 private:
  static constexpr size_t kMaxIds = 150, kMaxCallers = 12, kMaxJoins = 60;
  static constexpr uint32_t kChannels = 2;
  struct Channel {
    uint32_t handle;
    CounterId counter;
  };
  struct Caller {
    uint32_t number;
    Machine* machine;
    std::string name;
    std::vector<std::byte> memory;
    std::unique_ptr<Process> process;
    std::array<Channel, kChannels> channels;
    // The numbers of changes and removals of devices when the events were last taken.
    uint32_t changes_seen = 0, removals_seen = 0;
  };
  struct Id {
    uint32_t number = 0;  // its uid, with which its private data begins
    Caller* caller = nullptr;
    uint32_t handle = 0, channel = 0;
    uint16_t port_space = 0;
    bool datagram = false, ipv6 = false, ended = false;
    uint32_t qpn = 0;
    uint32_t backlog = 0;  // of a listener; 0: the largest possible
    uint32_t waited = 0;   // of a listener: requests that were pending at once
    uint16_t port = 0;     // of a listener
    bool listens = false;
    // Its own address, if it has one, and its destination.
    std::optional<NetAddress> local;
    NetAddress destination;
    uint32_t partner = 0;                 // of a connection: the id at the other end
    const Id* to = nullptr;               // a listener whose address it uses
    CmApi next = CmApi::kResolveAddress;  // the call that a correct program would make
  };

  struct Join {
    Id* id;
    uint32_t handle;
    NetAddress group;
  };
  // The uid of a group's events. The uids of ids are smaller.
  static constexpr uint64_t kJoinUid = uint64_t{1} << 32;

  Id* Any(bool (*fits)(const Id&));
  Caller* RunningCaller(const Machine& machine);
  MachineDevices& DevicesOf(const Id& id) { return devices_.at(id.caller->machine); }
  void DrainMachine(const Machine& machine);
  void RemoveDevice(Machine& machine, Process& process);
  void MoveAddress(Machine& machine, Process& process);
  CmApi AnyCall();
  Id* NewId(Caller& caller);
  Id& Remember(Caller& caller, uint32_t handle, uint32_t channel, uint16_t port_space,
               bool datagram);
  void Call(Id& id, CmApi call);
  // Takes all events first, so that the model has the host's state; then makes the call.
  template <class Command, class Out>
  int Ask(Id& id, CmApi call, uint32_t command, const Command& in, Out& out,
          bool well_formed = true, int due = 0) {
    Drain(*id.caller);
    const uint32_t channel = id.caller->channels[id.channel].handle;
    const int error = id.caller->process->Cm(channel, command, in, out);
    Judge(id, call, error, well_formed, due);
    return error;
  }
  template <class Command>
  int Do(Id& id, CmApi call, uint32_t command, const Command& in, bool well_formed = true,
         int due = 0) {
    Nothing answer;
    return Ask(id, call, command, in, answer, well_formed, due);
  }
  void Judge(Id& id, CmApi call, int error, bool well_formed, int due = 0);
  void Bind(Id& id);
  void ResolveAddress(Id& id);
  void Connect(Id& id);
  void Accept(Id& id);
  void Reject(Id& id);
  void SetOption(Id& id, CmApi call);
  void SetPath(Id& id);
  void InitQpAttr(Id& id, CmApi call);
  void JoinGroup(Id& id);
  void LeaveGroup();
  void Migrate(Id& id);
  void Query(Id& id);
  void Destroy(Id& id);
  bool FillParameters(Id& id, rdma_ucm_conn_param& out, std::vector<uint8_t>& said, size_t most);
  void DrawQpn(Id& id);
  void Drain(Caller& caller);
  void Happened(Caller& caller, uint32_t channel, const rdma_ucm_event_resp& event);
  void Requested(Caller& caller, uint32_t channel, const rdma_ucm_event_resp& event);
  void FindDevice(Id& id, const Id* active);
  void GroupHappened(Caller& caller, uint32_t channel, const rdma_ucm_event_resp& event);
  void End(Id& id);
  void Say(const Id& id, const std::string& what);
  static std::string NameOf(const Id& id);

  World& world_;
  CmModel model_;
  GroupModel groups_;
  CmChecker causes_;
  std::deque<Caller> callers_;
  std::deque<Id> ids_;
  std::deque<Join> joins_;
  std::map<const Machine*, MachineDevices> devices_;
  uint32_t device_numbers_ = 0;
  bool calm_ = false;
};

}  // namespace rdmaemu::sim
