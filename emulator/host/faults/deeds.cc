#include "emulator/host/faults/deeds.h"

#include <string.h>

#include "emulator/base/async_events.h"
#include "emulator/fault/scenario.h"

namespace rdmaemu {
namespace {

std::optional<RemovalHabits> HabitsOf(fault::RemoveDevice::How how) {
  switch (how) {
    case fault::RemoveDevice::How::kRxe:
      return RemovalHabits{.flushes = false, .raises_fatal = false};
    case fault::RemoveDevice::How::kHardware:
      return RemovalHabits{.flushes = true, .raises_fatal = true};
    case fault::RemoveDevice::How::kProfile:
      break;
  }
  return std::nullopt;
}

}  // namespace

void FaultDeeds::Do(Time now, const ObjectDeed& deed) {
  const Status done = std::visit([&](const auto& what) { return Act(now, deed, what); }, deed.what);
  Note(now, done, fault::ActionText(fault::Action(deed.what)));
}

std::vector<std::string> FaultDeeds::DevicesOf(const ObjectDeed& deed,
                                               const std::string& wanted) const {
  if (!wanted.empty()) return {wanted};
  if (!deed.device.empty()) return {deed.device};
  return devices_.PresentNames();
}

Status FaultDeeds::Act(Time now, const ObjectDeed& deed, const fault::RemoveDevice& what) {
  Status all;
  for (const std::string& name : DevicesOf(deed, what.device)) {
    const Status done = devices_.Remove(now, name, HabitsOf(what.how));
    if (done) {
      Later(now, what.return_after, DeviceReturns{name});
    } else {
      all = done;
    }
  }
  return all;
}

Status FaultDeeds::Act(Time now, const ObjectDeed& deed, const fault::SetPort& what) {
  Status all;
  for (const std::string& name : DevicesOf(deed, what.device)) {
    const Status done = devices_.SetPort(now, name, what.up);
    if (done) {
      Later(now, what.return_after, PortReturns{name, !what.up});
    } else {
      all = done;
    }
  }
  return all;
}

Status FaultDeeds::Act(Time now, const ObjectDeed&, const fault::RemoveAddress& what) {
  const auto owner = devices_.OwnerOf(what.address);
  if (!owner) return Fail(EADDRNOTAVAIL);
  const Status done = devices_.RemoveAddress(what.address);
  if (done) Later(now, what.return_after, AddressReturns{owner->first, owner->second});
  return done;
}

Status FaultDeeds::Act(Time now, const ObjectDeed&, const fault::MoveAddress& what) {
  return devices_.MoveAddress(now, what.address, what.device);
}

Status FaultDeeds::Act(Time now, const ObjectDeed& deed, const fault::SetPkey& what) {
  Status all;
  for (const std::string& name : DevicesOf(deed, what.device)) {
    // Check for room, because a P_Key may change again while earlier changes back are pending.
    if (what.return_after && !returns_.HasRoom()) return Fail(ENOSPC);
    const std::optional<uint16_t> before = devices_.PkeyOf(name, what.index);
    const Status done = devices_.SetPkey(name, what.index, what.pkey);
    if (!done) {
      all = done;
    } else if (*before != what.pkey) {
      Later(now, what.return_after, PkeyReturns{name, what.index, *before});
    }
  }
  return all;
}

// Raises the event on the moment's own queue pair, its queues or its device. Otherwise raises it on
// all objects of the devices.
Status FaultDeeds::Act(Time, const ObjectDeed& deed, const fault::RaiseAsync& what) {
  const auto type = static_cast<ibv_event_type>(what.type);
  if (verbs_.RaiseOf(deed.target.group, deed.target.qp, type)) return {};
  for (const std::string& name : DevicesOf(deed, what.device)) {
    for (Device* const device : verbs_.devices()) {
      if (device->name == name) verbs_.RaiseOnAll(*device, type);
    }
  }
  return {};
}

void FaultDeeds::Later(Time now, const std::optional<Duration>& after, Return what) {
  // There is at most one entry per device, port or address of the host, because a removed object
  // cannot be removed again.
  if (after) returns_.Put(now + *after, std::move(what));
}

Status FaultDeeds::Come(Time now, const Return& what) {
  if (const auto* device = std::get_if<DeviceReturns>(&what)) {
    return devices_.Return(device->name);
  }
  if (const auto* port = std::get_if<PortReturns>(&what)) {
    return devices_.SetPort(now, port->device, port->up);
  }
  if (const auto* pkey = std::get_if<PkeyReturns>(&what)) {
    return devices_.SetPkey(pkey->device, pkey->index, pkey->pkey);
  }
  const auto& address = std::get<AddressReturns>(what);
  return devices_.AddAddress(address.device, address.address);
}

void FaultDeeds::Expire(Time now) {
  returns_.Expire(now, [&](const Return& due) { Note(now, Come(now, due), "return"); });
}

void FaultDeeds::Note(Time now, const Status& done, std::string_view what) {
  if (done || !trace_.wants_records()) return;
  trace::Record record{now, ProcessId::kNone, "fault.failed", {}, std::string(what), {}};
  record.fields.push_back({"errno", int64_t{done.error().code}});
  trace_.Write(record);
}

}  // namespace rdmaemu
