// The effects of fault rules on a host's objects. The host applies them after the moment at which
// the rule fired, never during the moment.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "emulator/base/ids.h"
#include "emulator/fault/rule.h"
#include "emulator/host/faults/changing_devices.h"
#include "emulator/host/faults/deferred.h"
#include "emulator/host/faults/host_faults.h"
#include "emulator/trace/trace.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu {

class FaultDeeds {
 public:
  // Limit of the pending changes back to an earlier state. Without room for its change back, a
  // P_Key is not changed.
  static constexpr size_t kMaxReturns = 4096;

  FaultDeeds(ChangingDevices& devices, Verbs& verbs, trace::Sink& trace)
      : devices_(devices), verbs_(verbs), trace_(trace), returns_(kMaxReturns, refused_returns_) {}

  // Executes the deed. An impossible deed, for example on a removed device, is only traced.
  void Do(Time now, const ObjectDeed& deed);

  // Changes objects back whose time is due.
  void Expire(Time now);
  std::optional<Time> NextDeadline() const { return returns_.NextDeadline(); }

 private:
  struct DeviceReturns {
    std::string name;
  };
  struct PortReturns {
    std::string device;
    bool up;
  };
  struct AddressReturns {
    std::string device;
    HostAddress address;
  };
  struct PkeyReturns {
    std::string device;
    uint32_t index;
    uint16_t pkey;
  };
  using Return = std::variant<DeviceReturns, PortReturns, AddressReturns, PkeyReturns>;

  Status Act(Time now, const ObjectDeed& deed, const fault::RemoveDevice& what);
  Status Act(Time now, const ObjectDeed& deed, const fault::SetPort& what);
  Status Act(Time now, const ObjectDeed& deed, const fault::RemoveAddress& what);
  Status Act(Time now, const ObjectDeed& deed, const fault::MoveAddress& what);
  Status Act(Time now, const ObjectDeed& deed, const fault::SetPkey& what);
  Status Act(Time now, const ObjectDeed& deed, const fault::RaiseAsync& what);
  // The host itself executes deeds that affect the whole host.
  static Status Act(Time, const ObjectDeed&, const fault::PauseHost&) { return {}; }
  static Status Act(Time, const ObjectDeed&, const fault::CrashHost&) { return {}; }
  static Status Act(Time, const ObjectDeed&, const fault::EndProgram&) { return {}; }
  Status Come(Time now, const Return& what);
  void Later(Time now, const std::optional<Duration>& after, Return what);
  // Returns the names of the affected devices: the rule's, else the moment's, else all present
  // devices.
  std::vector<std::string> DevicesOf(const ObjectDeed& deed, const std::string& wanted) const;
  void Note(Time now, const Status& done, std::string_view what);

  ChangingDevices& devices_;
  Verbs& verbs_;
  trace::Sink& trace_;
  uint64_t refused_returns_ = 0;
  Deferred<Return> returns_;
};

}  // namespace rdmaemu
