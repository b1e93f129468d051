// Changes to the devices of CmCalls' machines, and their effect on the ids.
#include "tests/sim/cm_calls.h"
#include "tests/sim/socket_addresses.h"

namespace rdmaemu::sim {
namespace {

constexpr uint32_t kLongestChange_ms = 30'000;

}  // namespace

CmCalls::Caller* CmCalls::RunningCaller(const Machine& machine) {
  for (Caller& caller : callers_) {
    if (caller.machine == &machine && caller.process->Runs()) return &caller;
  }
  return nullptr;
}

void CmCalls::DrainMachine(const Machine& machine) {
  for (Caller& caller : callers_) {
    if (caller.machine == &machine && caller.process->Runs()) Drain(caller);
  }
}

void CmCalls::ChangeDevices(Machine& machine) {
  Random& random = world_.random();
  const Caller* caller = RunningCaller(machine);
  if (caller == nullptr) return;
  Process& process = *caller->process;
  // Queued events are from before the change. A program may get them together with the events of
  // the change.
  if (random.Below(2) == 0) DrainMachine(machine);
  switch (random.Below(8)) {
    case 0:
    case 1:
    case 2:
      RemoveDevice(machine, process);
      break;
    case 3:
    case 4:
      devices_.at(&machine).TakePortDown(process);
      break;
    case 5:
      devices_.at(&machine).TakeAddressAway(process);
      break;
    default:
      return MoveAddress(machine, process);
  }
  world_.After(std::chrono::milliseconds(random.Below(kLongestChange_ms)), [this, &machine] {
    const Caller* any = RunningCaller(machine);
    if (any != nullptr) devices_.at(&machine).Mend(*any->process, device_numbers_);
  });
}

void CmCalls::MendDevices() {
  for (const auto& machine : world_.machines()) {
    const Caller* caller = RunningCaller(*machine);
    while (caller != nullptr &&
           devices_.at(machine.get()).Mend(*caller->process, device_numbers_)) {
    }
  }
}

void CmCalls::RemoveDevice(Machine& machine, Process& process) {
  const std::optional<uint32_t> removed = devices_.at(&machine).RemoveOne(process);
  if (!removed) return;
  model_.Removed(*removed);
  for (Id& id : ids_) {
    if (id.ended || model_.DeviceOf(id.number) != *removed) continue;
    id.listens = false;
    causes_.Called(id.number, CmCallKind::kRemoval);
    groups_.IdRemoved(id.number);
  }
}

void CmCalls::MoveAddress(Machine& machine, Process& process) {
  const auto move = devices_.at(&machine).MoveOne(process);
  if (!move) return;
  for (const Id& id : ids_) {
    const uint32_t device = model_.DeviceOf(id.number);
    if (id.caller->machine == &machine && !id.ended && id.local == move->address && device != 0 &&
        device != move->to) {
      model_.AddressMoved(id.number);
    }
  }
}

// A request has the device at which it arrived. If this device has been removed since, the id got
// no event, but all its calls fail.
void CmCalls::FindDevice(Id& id, const Id* active) {
  const MachineDevices& devices = DevicesOf(id);
  rdma_ucm_query command{};
  command.id = id.handle;
  command.option = RDMA_USER_CM_QUERY_ADDR;
  rdma_ucm_query_addr_resp answer{};
  const int error = id.caller->process->Cm(id.caller->channels[id.channel].handle,
                                           RDMA_USER_CM_CMD_QUERY, command, answer);
  if (error == ENXIO && devices.removals() != id.caller->removals_seen) {
    world_.tally().Count("api.request_of_removed_device");
    model_.RequestRemoved(id.number);
    return causes_.Called(id.number, CmCallKind::kRemoval);
  }
  const auto local = cm::ParseSocketAddress(std::as_bytes(std::span(&answer.src_addr, 1)));
  if (error != 0 || !local || active == nullptr || local->address != active->destination) {
    return world_.verdict().Complain(
        "cm", NameOf(id) + ": errno " + std::to_string(error) + ", or it came to another address");
  }
  id.local = local->address;
  const uint32_t device = devices.NumberOf(answer.ibdev_index);
  const bool same_devices = devices.changes() == id.caller->changes_seen;
  if (device == 0 || (same_devices && device != devices.DeviceOf(*id.local))) {
    world_.verdict().Complain("cm", NameOf(id) + ": its device is not that of its address");
  }
  model_.Attached(id.number, device);
}

}  // namespace rdmaemu::sim
