// The state of a host, as the JSON that `rdmaemu hosts --json` prints.
#pragma once

#include <string>

#include "emulator/cm/cm.h"
#include "emulator/host/devices.h"
#include "emulator/host/fabric.h"
#include "emulator/host/faults/host_faults.h"
#include "emulator/host/host.h"
#include "emulator/host/processes.h"
#include "emulator/transport/engine.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu {

struct StatusSources {
  const HostConfig& config;
  const HostDevices& devices;
  const Processes& processes;
  const Verbs& verbs;
  const cm::Cm& cm;
  const transport::EngineCounters& engine;
  const FabricCounters& fabric;
  const FaultCounters& faults;
};

// {"name", "pid", "devices": [{"name", "profile", "present", "index", "port": "active" or "down",
// "addresses", "on_wire"}], "clients": [{"process",
// "pid", "program", "group"}], "groups": [{"group", objects by kind, "ids"}], "ids", "qps",
// "listeners": [{"port", "address", "port_space"}], "events": {name: events that programs got},
// "counters": {...}}
std::string StatusJson(const StatusSources& sources);

}  // namespace rdmaemu
